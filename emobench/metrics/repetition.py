"""Repetition: within a text (rep-n, diversity), and within the texts of a sampling run (distinct-n, self-BLEU).

    rep-n       1 - different n-grams / n-grams of a text; over texts, weighted by their n-grams
    diversity   (1 - rep-2) (1 - rep-3) (1 - rep-4)
    distinct-n  different n-grams of all texts of a run / words of these texts
    self-BLEU   mean BLEU-4 of each continuation with all others as its references

n-grams are of words of the continuation, and no n-gram goes from one text into the next. The authors' code of rep-n and
diversity (Su et al., NeurIPS 2022, SimCTG, simctg/evaluation.py) does not count the last n-gram of a text and gives
percent; every n-gram counts here, and values are fractions. distinct-n (Li et al., NAACL 2016) falls with the number of
texts, since new texts bring fewer new words: compare runs of equally many. Self-BLEU (Zhu et al., SIGIR 2018) is
smoothed as in Texygen, method 1 of nltk (an n-gram order without a match counts 0.1). Texygen takes references among
the first 500 texts; all are taken here, which costs no more than reading them: of the other texts' counts of an n-gram
only the largest matters, and that is the largest of all, or the second where it is the text's own.

Scripts without spaces between words have no such words: a continuation in one has no rep-n, and runs whose letters are
mostly of such scripts have none of these metrics (`words.has_spaces`).

Legend: N texts of a run, O orders of n-grams, K texts that a missing text changes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt
from emobench.metrics.words import has_spaces, ngrams, require_spaces
from emobench.tasks.scores import Measure, Score

REPEATED, DISTINCT, ORDERS = (2, 3, 4), (1, 2, 3), (1, 2, 3, 4)
"""The orders n of rep-n, distinct-n and BLEU."""
EPSILON = 0.1
SIMCTG = "Su et al., NeurIPS 2022"
REPETITION = {}
for _n in REPEATED:
    REPETITION[f"rep_{_n}"] = Measure(
        False,
        "fraction",
        secondary=True,
        title=f"Repeated {_n}-grams",
        definition=f"The share of a text's {_n}-grams that stand in it before.",
        source=SIMCTG,
    )
REPETITION["diversity"] = Measure(
    True,
    "fraction",
    secondary=True,
    title="Diversity",
    definition="The product of 1 - rep-n for n = 2, 3 and 4: low where texts repeat themselves.",
    source=SIMCTG,
)
DISTINCTNESS = {}
for _n, _units in zip(DISTINCT, ("words", "2-grams", "3-grams"), strict=True):
    DISTINCTNESS[f"distinct_{_n}"] = Measure(
        True,
        "fraction",
        secondary=True,
        title=f"Distinct {_units}",
        definition=f"Different {_units} of all texts of a sampling run, divided by their words. It falls with the "
        "number of texts.",
        source="Li et al., NAACL 2016",
    )
SELF_BLEU = Measure(
    False,
    "fraction",
    secondary=True,
    title="Self-BLEU",
    definition="The mean BLEU-4 of each text with all others as its references: how alike the texts are.",
    source="Zhu et al., SIGIR 2018",
)


def repetition(runs: Sequence[Sequence[str]], ids: Sequence[str]) -> dict[str, Score]:
    """Return rep_2, rep_3, rep_4 and diversity of the continuations of each run, one of each prompt that `ids` name.

    Texts of fewer than n words say nothing of rep-n. Raises MetricError if none of a run is that long.
    """
    require_spaces(runs)
    words: list[list[list[str]]] = []
    longest = REPEATED[-1]
    for run in runs:
        of_run: list[list[str]] = []
        for text in run:
            of_run.append(text.split() if has_spaces([text]) else [])
        if max(map(len, of_run), default=0) < longest:
            raise MetricError(
                f"No continuation of a sampling run has {longest} words, so that no {longest} can repeat."
            )
        words.append(of_run)
    scores = {}
    runs_R, value, without_N = np.ones(len(runs)), 1.0, np.ones(len(ids))
    for n in REPEATED:
        score = _repeated(words, ids, n)
        scores[f"rep_{n}"] = score
        runs_R = runs_R * (1 - np.array(score.repeats)[:, 0])
        value *= 1 - score.value
        without_N = without_N * (1 - _without_each(score, ids))
    fewest, measure = min(score.n for score in scores.values()), REPETITION["diversity"]
    scores["diversity"] = corpus_by_run(runs_R.tolist(), fewest, measure, value=value, ids=ids, without_N=without_N)
    return scores


def _without_each(mean: Score, ids: Sequence[str]) -> np.ndarray:
    """Return a weighted mean over prompts without each of them, (N,); nan where no other has a weight."""
    examples = mean.examples or {}
    value_N, weight_N = np.zeros((2, len(ids)))
    for place, key in enumerate(ids):
        value_N[place], weight_N[place] = examples.get(key, (0.0, 0.0))
    others_N = weight_N.sum() - weight_N
    sums_N = (value_N * weight_N).sum() - value_N * weight_N
    return np.divide(sums_N, others_N, out=np.full(len(ids), np.nan), where=others_N > 0)


def _repeated(words: list[list[list[str]]], ids: Sequence[str], n: int) -> Score:
    counts, values = [], []
    for run in words:
        lengths_N = np.array(list(map(len, run)))
        counts_N = np.maximum(lengths_N - n + 1, 0)
        different_N = np.zeros_like(counts_N)
        for i, text in enumerate(run):
            different_N[i] = len(set(ngrams(text, n)))
        counts.append(counts_N)
        values.append(1 - different_N / np.maximum(counts_N, 1))
    return mean_by_prompt(values, ids, REPETITION[f"rep_{n}"], weights_RN=counts)


def distinct(runs: Sequence[Sequence[str]], ids: Sequence[str] | None = None) -> dict[str, Score]:
    """Return distinct_1, distinct_2 and distinct_3, the means over the runs; MetricError if a run has no word.

    `ids` name the prompts where text i of every run continues prompt i: with them, the scores have pseudo-values.
    """
    require_spaces(runs)
    words = [list(map(str.split, run)) for run in runs]
    totals = [sum(map(len, run)) for run in words]
    if not totals or not all(totals):
        raise MetricError("All continuations of a sampling run are empty: there is no word to count.")
    scores = {}
    for n, (name, measure) in zip(DISTINCT, DISTINCTNESS.items(), strict=True):
        shares, without_RN = [], []
        for run in words:
            share, without_N = _distinct(run, n)
            shares.append(share)
            without_RN.append(without_N)
        without_N = np.mean(without_RN, axis=0)
        scores[name] = corpus_by_run(shares, len(words[0]), measure, ids=ids, without_N=without_N)
    return scores


def _distinct(texts: Sequence[Sequence[str]], n: int) -> tuple[float, np.ndarray]:
    """Return distinct-n of a run, and that without each of its texts, (N,); nan where no other text has a word."""
    of_texts = [set(ngrams(text, n)) for text in texts]
    holders = Counter[tuple[str, ...]]()
    for of_text in of_texts:
        holders.update(of_text)
    alone_N = np.zeros(len(texts), dtype=int)
    for i, of_text in enumerate(of_texts):
        alone_N[i] = list(map(holders.__getitem__, of_text)).count(1)
    words_N = np.array(list(map(len, texts)))
    others_N = words_N.sum() - words_N
    without_N = np.full(len(texts), np.nan)
    np.divide(len(holders) - alone_N, others_N, out=without_N, where=others_N > 0)
    return len(holders) / int(words_N.sum()), without_N


def self_bleu(runs: Sequence[Sequence[str]], ids: Sequence[str] | None = None) -> Score:
    """Return self-BLEU-4 as a fraction, the mean over the runs; MetricError if a run has fewer than two texts.

    `ids` name the prompts where text i of every run continues prompt i: with them, the score has pseudo-values.
    """
    if not runs or min(map(len, runs)) < 2:
        raise MetricError("Self-BLEU compares the texts of a run with one another, and needs at least two.")
    require_spaces(runs)
    values, without_RN = [], []
    for run in runs:
        value, without_N = _mean_bleu(list(map(str.split, run)))
        values.append(value)
        without_RN.append(without_N)
    return corpus_by_run(values, len(runs[0]), SELF_BLEU, ids=ids, without_N=np.mean(without_RN, axis=0))


def _mean_bleu(texts: list[list[str]]) -> tuple[float, np.ndarray]:
    """Return the mean BLEU of a run's texts, and that without each of them, (N,); nan of two texts."""
    count = len(texts)
    match_NO = np.zeros((count, len(ORDERS)), dtype=int)
    losses = []
    for order, n in enumerate(ORDERS):
        match_NO[:, order], of_order = _matches(texts, n)
        losses.append(of_order)
    length_N = np.array(list(map(len, texts)))
    penalty_N, nearest = _penalties(length_N)
    bleu_N = _bleu(length_N, match_NO, penalty_N)
    if count < 3:
        return float(bleu_N.mean()), np.full(count, np.nan)
    without_N = (bleu_N.sum() - bleu_N) / (count - 1)
    for gone, of_left in _changed(losses, nearest).items():
        left_K = np.array(list(of_left))
        loss_KO = np.array(list(of_left.values()))
        penalty_K = penalty_N[left_K]
        if gone in nearest:  # lengths nearest to its own have another one
            kept_N = np.delete(np.arange(count), gone)
            others_N = np.zeros(count)
            others_N[kept_N] = _penalties(length_N[kept_N])[0]
            penalty_K = others_N[left_K]
        bleu_K = _bleu(length_N[left_K], match_NO[left_K] - loss_KO, penalty_K)
        without_N[gone] += (bleu_K - bleu_N[left_K]).sum() / (count - 1)
    return float(bleu_N.mean()), without_N


def _changed(
    losses: Sequence[Sequence[tuple[int, int, int]]], nearest: Mapping[int, Sequence[int]]
) -> dict[int, dict[int, list[int]]]:
    """Return text that leaves -> text whose BLEU changes with it -> the matches that this one loses, by order.

    These are the texts that only it, or only it but one, shares an n-gram with, and those nearest to its length alone.
    """
    changed: dict[int, dict[int, list[int]]] = {}
    for order, of_order in enumerate(losses):
        for gone, left, loss in of_order:
            changed.setdefault(gone, {}).setdefault(left, [0] * len(ORDERS))[order] += loss
    for gone, lefts in nearest.items():
        for left in lefts:
            changed.setdefault(gone, {}).setdefault(left, [0] * len(ORDERS))
    return changed


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
            second_count, second = rest[0]
            third_count, _ = rest[1] if len(rest) > 1 else (0, None)
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
        if len(texts) == 2:
            first, second = texts
            nearest.setdefault(first, []).append(second)
            nearest.setdefault(second, []).append(first)
        elif len(texts) == 1:
            if not length:
                penalty_N[texts] = 0.0
            elif length <= best:
                penalty_N[texts] = math.exp(1 - best / length)
            if len(places[best]) == 1:
                nearest.setdefault(places[best][0], []).extend(texts)
    return penalty_N, nearest


def _bleu(length_N: np.ndarray, match_NO: np.ndarray, penalty_N: np.ndarray) -> np.ndarray:
    """Return BLEU of texts of these lengths from their matches of each order, (N,)."""
    total_NO = np.maximum(length_N[:, None] - np.array(ORDERS) + 1, 1)
    matched_NO = np.where(match_NO > 0, match_NO, EPSILON)
    mean_N = np.log(matched_NO / total_NO).mean(1)
    return np.where(match_NO[:, 0] > 0, penalty_N * np.exp(mean_N), 0.0)
