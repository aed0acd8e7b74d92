"""Distinct-n: different n-grams of all texts of a run, over the number of their words (Li et al., NAACL 2016).

It falls with the number of texts, since new texts bring fewer new words: compare runs of equally many. n-grams are of
words of the continuation, and none goes from one text into the next.
"""

from __future__ import annotations

from collections.abc import Sequence

from emobench.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run
from emobench.metrics.words import ngrams, words_of
from emobench.tasks.scores import Score

ORDERS = (1, 2, 3)


def distinct(runs: Sequence[Sequence[str]]) -> dict[str, Score]:
    """Return distinct_1, distinct_2 and distinct_3, the means over the runs; MetricError if a run has no word."""
    words = [[words_of(text) for text in run] for run in runs]
    totals = [sum(map(len, run)) for run in words]
    if not totals or not all(totals):
        raise MetricError("All continuations of a sampling run are empty: there is no word to count.")
    return {f"distinct_{n}": _score(words, totals, n) for n in ORDERS}


def _score(words: list[list[list[str]]], totals: list[int], n: int) -> Score:
    found = [len({ngram for text in run for ngram in ngrams(text, n)}) for run in words]
    values = [count / total for count, total in zip(found, totals, strict=True)]
    return corpus_by_run(values, len(words[0]))
