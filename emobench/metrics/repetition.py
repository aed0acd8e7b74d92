"""Repetition within a text: rep-2, rep-3, rep-4 and diversity (Su et al., NeurIPS 2022, contrastive search).

    rep-n      1 - distinct n-grams / n-grams of a text; over texts, weighted by their n-grams
    diversity  (1 - rep-2) (1 - rep-3) (1 - rep-4)

n-grams are of words of the continuation. The authors' code (SimCTG, simctg/evaluation.py) does not count the last
n-gram of a text and gives percent; every n-gram counts here, and values are fractions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from emobench.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt
from emobench.metrics.words import ngrams, words_of
from emobench.tasks.scores import SECONDARY, Score

ORDERS = (2, 3, 4)


def repetition(runs: Sequence[Sequence[str]], ids: Sequence[str]) -> dict[str, Score]:
    """Return rep_2, rep_3, rep_4 and diversity of the continuations of each run, one of each prompt that `ids` name.

    Texts of fewer than n words say nothing of rep-n. Raises MetricError if none of a run is that long.
    """
    words = [[words_of(text) for text in run] for run in runs]
    if not all(any(len(text) >= ORDERS[-1] for text in run) for run in words):
        raise MetricError(
            f"No continuation of a sampling run has {ORDERS[-1]} words, so that no {ORDERS[-1]} of them can repeat."
        )
    found = {f"rep_{n}": _repeated(words, ids, n) for n in ORDERS}
    by_run = zip(*(score.repeats for score in found.values()), strict=True)
    return {**found, "diversity": _diversity(list(found.values()), list(by_run))}


def _repeated(words: list[list[list[str]]], ids: Sequence[str], n: int) -> Score:
    counts = [[max(len(text) - n + 1, 0) for text in run] for run in words]
    values = [[1 - len(set(ngrams(text, n))) / max(len(text) - n + 1, 1) for text in run] for run in words]
    return mean_by_prompt(values, ids, weights_RN=counts, higher_is_better=False, flags=(SECONDARY,))


def _diversity(scores: list[Score], by_run: list[tuple[tuple[float, ...], ...]]) -> Score:
    return corpus_by_run(
        [math.prod(1 - value for (value,) in run) for run in by_run],
        min(score.n for score in scores),
        value=math.prod(1 - score.value for score in scores),
    )
