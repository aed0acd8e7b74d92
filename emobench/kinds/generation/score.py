"""Samples on disk to scores, for tasks of kind `generation`."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from emobench.config import content_hash
from emobench.data.packing import pack_blocks
from emobench.data.texts import Texts
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.generation.features import features_of, sentences_of
from emobench.kinds.generation.generate import PROMPTS, SAMPLES
from emobench.kinds.generation.prompts import text_of
from emobench.kinds.generation.rules import GenerationProtocol
from emobench.kinds.generation.samples import read_samples
from emobench.kinds.generation.sampling_runs import Runs, sampling_runs
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import require_count
from emobench.metrics.coherence import coherence
from emobench.metrics.distinct import distinct
from emobench.metrics.entropy import entropy
from emobench.metrics.mauve.score import MAUVE_RUNS, mauve_scores
from emobench.metrics.oracle_perplexity import oracle_perplexity
from emobench.metrics.perplexity import perplexity
from emobench.metrics.repetition import repetition
from emobench.metrics.rouge import rouge
from emobench.metrics.self_bleu import self_bleu
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
    found = Scored()
    found.add(TEST_TEXT, partial(_test_text, subject, rules, texts))
    found.add(("mauve", "mauve_star"), partial(_mauve, subject, rules, runs, found.files))
    if oracle := rules.auxiliary_models.get("oracle"):
        found.add(("ppl_oracle",), partial(_oracle_perplexity, subject, rules, oracle, runs))
    found.add(("rouge1", "rouge2", "rougeL"), partial(_rouge, subject, rules, runs))
    found.add(("rep_2", "rep_3", "rep_4", "diversity"), partial(repetition, runs.continuations, runs.ids))
    found.add(("distinct_1", "distinct_2", "distinct_3"), partial(distinct, runs.continuations))
    found.add(("self_bleu",), lambda: {"self_bleu": self_bleu(runs.continuations)})
    if rules.coherence.encoder is not None:
        found.add(("coherence",), partial(_coherence, subject, rules.coherence.encoder, runs))
    units = _units(runs, texts)
    for name in found.scores.keys() - set(TEST_TEXT):
        found.scores[name] = replace(found.scores[name], units=units)
    if _fewer_prompts(folder):
        for name in found.scores.keys() - set(TEST_TEXT):
            found.scores[name] = replace(found.scores[name], flags=(*found.scores[name].flags, "fewer_prompts"))
    return found


def _mauve(subject: Subject, rules: GenerationProtocol, runs: Runs, files: dict[str, str]) -> dict[str, Score]:
    human_ND = features_of(subject, rules.mauve, runs.references, keep=True)
    generated_MD = features_of(subject, rules.mauve, [text for run in runs.texts for text in run])
    runs_MD = np.split(generated_MD, len(runs.samples))
    found = mauve_scores(human_ND, runs_MD, seeds=rules.mauve.seeds, ids=runs.ids)
    files[MAUVE_RUNS] = found.to_json()
    return found.scores


def _oracle_perplexity(
    subject: Subject, rules: GenerationProtocol, model: AuxiliaryModel, runs: Runs
) -> dict[str, Score]:
    oracle = subject.other(model)
    with subject.work("perplexity under the oracle", "texts") as progress:
        score = oracle_perplexity(
            runs.pairs, runs.ids, oracle.model, oracle.tokenizer, scope=rules.oracle.scope, progress=progress
        )
    return {"ppl_oracle": score}


def _rouge(subject: Subject, rules: GenerationProtocol, runs: Runs) -> dict[str, Score]:
    with subject.work("ROUGE", "prompts") as progress:
        return rouge(runs.texts, runs.references, runs.ids, stemming=rules.stemming, progress=progress)


def _coherence(subject: Subject, name: str, runs: Runs) -> dict[str, Score]:
    encoder = subject.sentence_encoder(name)
    prefixes_ND = sentences_of(subject, encoder, runs.prefixes, keep=True)
    encode = partial(sentences_of, subject, encoder)
    return {"coherence": coherence(prefixes_ND, runs.continuations, runs.ids, encode)}


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


def _units(runs: Runs, texts: Texts) -> dict[str, str]:
    """Return the sampling unit of each prompt that shares one with others."""
    units = {key: texts.units[text_of(key)] for key in runs.ids}
    shared = Counter(units.values())
    return {key: unit for key, unit in units.items() if shared[unit] > 1}


def _prompts(folder: Path) -> dict[str, Any]:
    """Return how many texts gave prompts (see Selection.to_json)."""
    return json.loads((folder / PROMPTS).read_text(encoding="utf-8"))


def _fewer_prompts(folder: Path) -> bool:
    """Return whether fewer texts gave a prompt than were asked for."""
    known = _prompts(folder)
    return known["limit"] is not None and known["used"] < known["limit"]
