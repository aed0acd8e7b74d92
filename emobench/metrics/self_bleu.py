"""Self-BLEU: how alike the texts of a sampling run are to one another (Zhu et al., SIGIR 2018, Texygen).

The mean BLEU-4 of each continuation with all others as its references; smoothing as in Texygen, method 1 of nltk (an
n-gram order without a match counts 0.1). Texygen takes references among the first 500 texts; all are taken here, which
costs no more than reading them: of the other texts' counts of an n-gram only the largest matters, and that is the
largest of all, or the second where it is the text's own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from emobench.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run
from emobench.metrics.repetition import ngrams, require_spaces, words_of
from emobench.tasks.scores import Measure, Score

ORDERS = (1, 2, 3, 4)
EPSILON = 0.1
SELF_BLEU = {"self_bleu": Measure(False, "fraction", secondary=True)}


def self_bleu(runs: Sequence[Sequence[str]]) -> Score:
    """Return self-BLEU-4 as a fraction, the mean over the runs; MetricError if a run has fewer than two texts."""
    if not runs or min(map(len, runs)) < 2:
        raise MetricError("Self-BLEU compares the texts of a run with one another, and needs at least two.")
    require_spaces(runs)
    values = [_mean_bleu([words_of(text) for text in run]) for run in runs]
    return corpus_by_run(values, len(runs[0]), SELF_BLEU["self_bleu"])


def _mean_bleu(texts: list[list[str]]) -> float:
    matches = list(zip(*(_matches(texts, n) for n in ORDERS), strict=True))
    lengths = Counter(map(len, texts))
    return sum(_bleu(len(text), lengths, found) for text, found in zip(texts, matches, strict=True)) / len(texts)


def _matches(texts: list[list[str]], n: int) -> list[int]:
    """Return how many n-grams of each text stand in another, each at most as often as in one of them."""
    counts = [Counter(ngrams(text, n)) for text in texts]
    first: dict[tuple[str, ...], int] = {}
    second: dict[tuple[str, ...], int] = {}
    for ngram, count in (item for each in counts for item in each.items()):
        best = first.get(ngram, 0)
        if count > best:
            first[ngram], second[ngram] = count, best
        elif count > second[ngram]:
            second[ngram] = count
    return [sum(min(c, second[g] if c == first[g] else first[g]) for g, c in each.items()) for each in counts]


def _bleu(length: int, lengths: Counter[int], matches: Iterable[int]) -> float:
    """Return BLEU of a text of `length` words from its matches of each order; `lengths` are those of all texts."""
    found = list(matches)
    if not found[0]:
        return 0.0
    others = lengths - Counter([length])
    nearest = length if length in others else min(others, key=lambda other: (abs(other - length), other))
    penalty = 1.0 if length > nearest else math.exp(1 - nearest / length)
    totals = [max(length - n + 1, 1) for n in ORDERS]
    logs = [math.log((match or EPSILON) / total) for match, total in zip(found, totals, strict=True)]
    return penalty * math.exp(math.fsum(logs) / len(ORDERS))
