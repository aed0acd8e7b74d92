"""Self-BLEU: how alike the texts of a sampling run are to one another (Zhu et al., SIGIR 2018, Texygen).

The mean BLEU-4 of each continuation with all others as its references; smoothing as in Texygen, method 1 of nltk (an
n-gram order without a match counts 0.1). Texygen takes references among the first 500 texts; all are taken here, which
costs no more than reading them: of the other texts' counts of an n-gram only the largest matters, and that is the
largest of all, or the second where it is the text's own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run
from emobench.metrics.repetition import ngrams, require_spaces, words_of
from emobench.tasks.scores import Measure, Score

ORDERS = (1, 2, 3, 4)
EPSILON = 0.1
SELF_BLEU = {"self_bleu": Measure(False, "fraction", secondary=True)}


def self_bleu(runs: Sequence[Sequence[str]], ids: Sequence[str] | None = None) -> Score:
    """Return self-BLEU-4 as a fraction, the mean over the runs; MetricError if a run has fewer than two texts.

    `ids` name the prompts where text i of every run continues prompt i: with them, the score has pseudo-values.
    """
    if not runs or min(map(len, runs)) < 2:
        raise MetricError("Self-BLEU compares the texts of a run with one another, and needs at least two.")
    require_spaces(runs)
    values, without_RN = zip(*(_mean_bleu([words_of(text) for text in run]) for run in runs), strict=True)
    return corpus_by_run(values, len(runs[0]), SELF_BLEU["self_bleu"], ids=ids, without_N=np.mean(without_RN, axis=0))


def _mean_bleu(texts: list[list[str]]) -> tuple[float, np.ndarray]:
    """Return the mean BLEU of a run's texts, and that without each of them, (N,); nan of two texts."""
    count = len(texts)
    of_orders = [_matches(texts, n) for n in ORDERS]
    match_NO = np.array([matches for matches, _ in of_orders]).T
    length_N = np.array([len(text) for text in texts])
    penalty_N, nearest = _penalties(length_N)
    bleu_N = _bleu(length_N, match_NO, penalty_N)
    if count < 3:
        return float(bleu_N.mean()), np.full(count, np.nan)
    without_N = (bleu_N.sum() - bleu_N) / (count - 1)
    # A text that leaves changes the BLEU of the texts that only it, or only it but one, shares an n-gram with ...
    changed: dict[int, dict[int, list[int]]] = {}
    for order, (_, losses) in enumerate(of_orders):
        for gone, left, loss in losses:
            changed.setdefault(gone, {}).setdefault(left, [0] * len(ORDERS))[order] += loss
    # ... and of those that are nearest to its length alone.
    for gone, lefts in nearest.items():
        for left in lefts:
            changed.setdefault(gone, {}).setdefault(left, [0] * len(ORDERS))
    for gone, of_left in changed.items():
        left_K = np.array(list(of_left))
        loss_KO = np.array(list(of_left.values()))
        penalty_K = penalty_N[left_K]
        if gone in nearest:
            kept_N = np.delete(np.arange(count), gone)
            others_N = np.zeros(count)
            others_N[kept_N] = _penalties(length_N[kept_N])[0]
            penalty_K = others_N[left_K]
        bleu_K = _bleu(length_N[left_K], match_NO[left_K] - loss_KO, penalty_K)
        without_N[gone] += (bleu_K - bleu_N[left_K]).sum() / (count - 1)
    return float(bleu_N.mean()), without_N


def _matches(texts: list[list[str]], n: int) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Return how many n-grams of each text stand in another, each at most as often as in one of them.

    Also (text that leaves, other text, matches that the other one loses). The matches of a text depend on the largest
    count among the others, so that only the two texts with the largest counts of an n-gram can lose any.
    """
    counts = [Counter(ngrams(text, n)) for text in texts]
    largest: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for text, each in enumerate(counts):
        for ngram, count in each.items():
            of_ngram = largest.setdefault(ngram, [])
            of_ngram.append((count, text))
            if len(of_ngram) > 3:
                of_ngram.remove(min(of_ngram))
    matches, losses = [0] * len(texts), []
    for of_ngram in largest.values():
        of_ngram.sort(reverse=True)
    for text, each in enumerate(counts):
        for ngram, count in each.items():
            first, *rest = largest[ngram]
            if rest:
                matches[text] += min(count, rest[0][0] if first[1] == text else first[0])
    for (count, first), *rest in largest.values():
        if rest:
            (second_count, second), third_count = rest[0], rest[1][0] if len(rest) > 1 else 0
            loss = min(count, second_count) - third_count
            if loss:
                losses += [(first, second, loss), (second, first, loss)]
    return matches, losses


def _penalties(length_N: np.ndarray) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Return each text's brevity penalty, by the length of another text that is nearest to its own (the shorter one).

    Also text -> the texts to which it alone is nearest.
    """
    places: dict[int, list[int]] = {}
    for text, length in enumerate(length_N.tolist()):
        places.setdefault(length, []).append(text)
    penalty_N, nearest = np.ones(len(length_N)), {}
    for length, texts in places.items():
        others = [other for other in places if other != length]
        best = min(others, key=lambda other: (abs(other - length), other), default=length)
        if len(texts) == 1:
            penalty_N[texts] = _penalty(length, best)
        chosen = places[best] if len(texts) == 1 else texts
        if len(chosen) <= 2 and len(texts) > 1:
            nearest.setdefault(chosen[0], []).extend(chosen[1:])
            nearest.setdefault(chosen[1], []).extend(chosen[:1])
        elif len(chosen) == 1:
            nearest.setdefault(chosen[0], []).extend(texts)
    return penalty_N, nearest


def _penalty(length: int, nearest: int) -> float:
    if not length:
        return 0.0
    return 1.0 if length > nearest else math.exp(1 - nearest / length)


def _bleu(length_N: np.ndarray, match_NO: np.ndarray, penalty_N: np.ndarray) -> np.ndarray:
    """Return BLEU of texts of these lengths from their matches of each order, (N,)."""
    total_NO = np.maximum(length_N[:, None] - np.array(ORDERS) + 1, 1)
    matched_NO = np.where(match_NO > 0, match_NO, EPSILON)
    mean_N = np.log(matched_NO / total_NO).mean(1)
    return np.where(match_NO[:, 0] > 0, penalty_N * np.exp(mean_N), 0.0)
