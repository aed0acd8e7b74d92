"""Samples on disk to scores, for tasks of kind `generation`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from emobench.data.packing import pack_blocks
from emobench.data.texts import Texts
from emobench.evaluation.generation.features import features_of
from emobench.evaluation.generation.generate import SAMPLES
from emobench.evaluation.generation.samples import Sample, read_samples
from emobench.evaluation.kinds import Scored, Subject
from emobench.evaluation.metrics.entropy import entropy
from emobench.evaluation.metrics.mauve import mauve_scores
from emobench.evaluation.metrics.perplexity import perplexity
from emobench.evaluation.metrics.rouge import rouge
from emobench.evaluation.metrics.token_pass import evaluate_tokens
from emobench.models.head import probe_head
from emobench.tasks.generation import GenerationProtocol, MauveRule
from emobench.tasks.scores import Score


def score_samples(subject: Subject, rules: GenerationProtocol, texts: Texts, folder: Path) -> Scored:
    """Compute every metric of the samples that `folder` holds."""
    samples = read_samples(folder / SAMPLES)
    found = Scored()
    found.add(("ppl_test", "entropy"), partial(_test_text, subject, rules, texts))
    found.add(("mauve", "mauve_star"), partial(mauve_of_samples, subject, rules.mauve, samples, rules.joiner))
    found.add(("rouge1", "rouge2", "rougeL"), partial(rouge_of_samples, samples, rules.joiner))
    return found


def mauve_of_samples(subject: Subject, rule: MauveRule, samples: list[Sample], joiner: str) -> dict[str, Score]:
    """Return MAUVE and MAUVE* of prefix + continuation against the human texts; the mean over the samples' indices."""
    human = list({sample.prompt_id: sample.reference_text for sample in samples}.values())
    human_ND = features_of(subject, rule, human, keep=True)
    runs = [
        mauve_scores(human_ND, features_of(subject, rule, [s.full_text(joiner) for s in group]), seeds=rule.seeds)
        for group in _by_index(samples)
    ]
    return {"mauve": _mean([run.mauve for run in runs]), "mauve_star": _mean([run.mauve_star for run in runs])}


def rouge_of_samples(samples: list[Sample], joiner: str) -> dict[str, Score]:
    """Return ROUGE-1/2/L of prefix + continuation against the human texts."""
    generated = [sample.full_text(joiner) for sample in samples]
    return rouge(generated, [s.reference_text for s in samples], [s.prompt_id for s in samples])  # type: ignore[return-value]


def _test_text(subject: Subject, rules: GenerationProtocol, texts: Texts) -> dict[str, Score]:
    rows = pack_blocks(texts.texts, subject.tokenizer, length=rules.max_length)
    if rules.test_blocks is not None:
        rows = rows.first(rules.test_blocks * rules.max_length)
    with subject.work("perplexity of the test text", "blocks") as progress:
        head = probe_head(subject.model, subject.tokenizer)
        sums = evaluate_tokens(subject.model, head, rows, {"entropy"}, progress=progress)  # type: ignore[arg-type]
    ids = [str(i) for i in range(len(rows))]
    return {"ppl_test": perplexity(sums, ids), "entropy": entropy(sums, ids)}


def _by_index(samples: list[Sample]) -> list[list[Sample]]:
    """Return the samples of each index, one of each prompt: a sampling run, in the paper's words."""
    groups: dict[int, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.sample, []).append(sample)
    return list(groups.values())


def _mean(scores: list[Score]) -> Score:
    return replace(scores[0], value=float(np.mean([score.value for score in scores])))
