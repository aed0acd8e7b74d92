"""Samples on disk to scores, for tasks of kind `generation`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emobench.core.errors import MetricError
from emobench.core.settings import content_hash
from emobench.data.packing import pack_blocks
from emobench.data.sampling_units import joined_units, text_digest
from emobench.data.texts import Texts
from emobench.kinds.generation.blocks import with_blocks
from emobench.kinds.generation.built_in import built_in
from emobench.kinds.generation.generate import PROMPTS, SAMPLES
from emobench.kinds.generation.kind import METRICS
from emobench.kinds.generation.metric import MetricContext, MetricGroup
from emobench.kinds.generation.prompts import text_of
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import GeneratedTexts, read_samples, sampling_runs
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import require_count
from emobench.metrics.perplexity import entropy, perplexity
from emobench.metrics.token_pass import TokenSums, evaluate_tokens
from emobench.models.head import probe_head
from emobench.tasks.scores import Score

TEST_TEXT = ("ppl_test", "entropy")
"""The metrics that no prompt and no sample decides."""
SUMS = "sums.npz"


def score_samples(subject: Subject, rules: GenerationProtocol, texts: Texts, folder: Path) -> Scored:
    """Compute every metric of the samples that `folder` holds."""
    samples = read_samples(folder / SAMPLES)
    require_count(folder / SAMPLES, "texts", len(samples), _prompts(folder)["used"] * rules.sampling.samples)
    runs = sampling_runs(samples, rules.joiner)
    scored = Scored()
    scored.add(TEST_TEXT, partial(_test_text, subject, rules, texts))
    units = _units(runs, texts)
    for metric in built_in(rules):
        context = MetricContext(subject, rules, rules.auxiliary_models, scored.files)
        scored.add(tuple(metric.measures), partial(_scores, metric, runs, context))
    for text in rules.metrics:
        metric = METRICS.load(text).plugin
        context = MetricContext(subject, rules, metric.models, scored.files)
        scored.add(tuple(metric.measures), partial(_block_scores, metric, runs, context, units))
    flags = ("fewer_prompts",) if _fewer_prompts(folder) else ()
    for name in scored.scores.keys() - set(TEST_TEXT):
        score = scored.scores[name]
        scored.scores[name] = replace(score, units=score.units or units, flags=(*score.flags, *flags))
    return scored


def _scores(metric: MetricGroup, texts: GeneratedTexts, context: MetricContext) -> Mapping[str, Score]:
    scores = metric.score(texts, context)
    if scores.keys() != metric.measures.keys():
        raise MetricError(
            f"{metric.name} returns {', '.join(scores) or 'nothing'}; expected {', '.join(metric.measures)}."
        )
    return scores


def _block_scores(
    metric: MetricGroup, texts: GeneratedTexts, context: MetricContext, units: Mapping[str, str]
) -> Mapping[str, Score]:
    return with_blocks(metric, texts, context, _scores(metric, texts, context), units)


def _test_text(subject: Subject, rules: GenerationProtocol, texts: Texts) -> dict[str, Score]:
    """Return PPL_test and entropy, by sampling unit; the sums are kept, since no other rule changes them."""
    facts = {
        "subject": dict(subject.facts),
        "texts": texts.fingerprint,
        "length": rules.max_length,
        "blocks": rules.test_blocks,
        "units": content_hash(list(texts.units)),
    }

    def work(folder: Path) -> None:
        _read_blocks(subject, rules, texts).save(folder / SUMS)

    sums = TokenSums.load(subject.keep("perplexity", facts, work) / SUMS)
    ids = list(dict.fromkeys(texts.units))[: len(sums.tokens_R)]  # a limit leaves the last ones unread
    return {"ppl_test": perplexity(sums, ids), "entropy": entropy(sums, ids)}


def _read_blocks(subject: Subject, rules: GenerationProtocol, texts: Texts) -> TokenSums:
    """Read the text in blocks, and sum each token's statistics into the unit that the token is of."""
    rows = pack_blocks(texts.texts, subject.tokenizer, length=rules.max_length, with_sources=True)
    if rules.test_blocks is not None:
        rows = rows.first(rules.test_blocks * rules.max_length)
    assert rows.sources is not None
    number = {unit: i for i, unit in enumerate(dict.fromkeys(texts.units))}
    of_token = np.array([number[unit] for unit in texts.units])[rows.sources]
    groups = np.split(of_token, rows.offsets[1:-1])
    with subject.work("perplexity of the test text", "blocks") as progress:
        head = probe_head(subject.model, subject.tokenizer)
        needs = {"entropy"}
        return evaluate_tokens(subject.model, head, rows, needs, groups=groups, progress=progress)  # type: ignore[arg-type]


def _units(runs: GeneratedTexts, texts: Texts) -> dict[str, str]:
    """Return the sampling unit of each prompt that was sampled with others: of one document, or with equal prefixes."""
    contents = {key: [text_digest(prefix)] for key, prefix in zip(runs.ids, runs.prefixes, strict=True)}
    return joined_units(contents, {key: texts.units[text_of(key)] for key in runs.ids})


def _prompts(folder: Path) -> dict[str, Any]:
    """Return how many texts gave prompts (see SelectedPrompts.to_json)."""
    return json.loads((folder / PROMPTS).read_text(encoding="utf-8"))


def _fewer_prompts(folder: Path) -> bool:
    """Return whether fewer texts gave a prompt than were asked for."""
    known = _prompts(folder)
    return known["limit"] is not None and known["used"] < known["limit"]
