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
the first 500 texts; here all other texts are references. Only the largest count of an n-gram among them matters.

Scripts without spaces between words have no such words: a continuation in one has no rep-n, and runs whose letters are
mostly of such scripts have none of these metrics (`words.has_spaces`).

Legend: N texts of a run, W their words, G (text, n-gram) pairs, O orders of n-grams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt
from emobench.metrics.words import has_spaces, require_spaces
from emobench.tasks.scores import Measure, Score

REPEATED, DISTINCT, LONGEST = (2, 3, 4), (1, 2, 3), 4
"""The orders n of rep-n and of distinct-n, and the largest order of all, that of BLEU-4."""
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
    values: dict[int, list[np.ndarray]] = {n: [] for n in REPEATED}
    counts: dict[int, list[np.ndarray]] = {n: [] for n in REPEATED}
    for run in runs:
        texts = []
        for text in run:
            texts.append(text.split() if has_spaces([text]) else [])
        if max(map(len, texts), default=0) < LONGEST:
            raise MetricError(
                f"No continuation of a sampling run has {LONGEST} words, so that no {LONGEST} can repeat."
            )
        length_N = np.array(list(map(len, texts)))
        for n, text_G, _, _ in _ngrams(texts, LONGEST):
            if n in REPEATED:
                count_N = np.maximum(length_N - n + 1, 0)
                different_N = np.bincount(text_G, minlength=len(texts))
                counts[n].append(count_N)
                values[n].append(1 - different_N / np.maximum(count_N, 1))
    scores = {}
    value, runs_R = 1.0, np.ones(len(runs))
    for n in REPEATED:
        name = f"rep_{n}"
        score = scores[name] = mean_by_prompt(values[n], ids, REPETITION[name], weights_RN=counts[n])
        value *= 1 - score.value
        runs_R = runs_R * (1 - np.array(score.repeats)[:, 0])
    scores["diversity"] = corpus_by_run(runs_R.tolist(), scores["rep_4"].n, REPETITION["diversity"], value=value)
    return scores


def distinct(runs: Sequence[Sequence[str]]) -> dict[str, Score]:
    """Return distinct_1, distinct_2 and distinct_3, the means over the runs; MetricError if a run has no word."""
    require_spaces(runs)
    shares: dict[int, list[float]] = {n: [] for n in DISTINCT}
    for run in runs:
        texts = list(map(str.split, run))
        if not any(texts):
            raise MetricError("All continuations of a sampling run are empty: there is no word to count.")
        for n, _, ngram_G, _ in _ngrams(texts, max(DISTINCT)):
            different = np.count_nonzero(np.diff(ngram_G, prepend=-1))
            shares[n].append(different / sum(map(len, texts)))
    scores = {}
    for n, (name, measure) in zip(DISTINCT, DISTINCTNESS.items(), strict=True):
        scores[name] = corpus_by_run(shares[n], len(runs[0]), measure)
    return scores


def self_bleu(runs: Sequence[Sequence[str]]) -> Score:
    """Return self-BLEU-4 as a fraction, the mean over the runs; MetricError if a run has fewer than two texts."""
    if not runs or min(map(len, runs)) < 2:
        raise MetricError("Self-BLEU compares the texts of a run with one another, and needs at least two.")
    require_spaces(runs)
    values = []
    for run in runs:
        texts = list(map(str.split, run))
        length_N = np.array(list(map(len, texts)))
        logs_N, is_zero_N = np.zeros((2, len(texts)))
        for n, text_G, ngram_G, count_G in _ngrams(texts, LONGEST):
            match_N = np.bincount(text_G, weights=_matches(ngram_G, count_G), minlength=len(texts))
            total_N = np.maximum(length_N - n + 1, 1)
            logs_N += np.log(np.where(match_N > 0, match_N, EPSILON) / total_N) / LONGEST
            if n == 1:
                is_zero_N = match_N == 0
        bleu_N = np.exp(logs_N + _log_penalties(length_N))
        values.append(float(np.where(is_zero_N, 0.0, bleu_N).mean()))
    return corpus_by_run(values, len(runs[0]), SELF_BLEU)


def _matches(ngram_G: np.ndarray, count_G: np.ndarray) -> np.ndarray:
    """Return how many of each text's n-grams another text has, at most as many as the one with the most has."""
    order_G = np.lexsort((count_G, ngram_G))
    count_G = count_G[order_G]
    is_last_G = np.diff(ngram_G[order_G], append=-1) != 0  # the pair with the largest count of its n-gram
    most_G = count_G[is_last_G][np.cumsum(is_last_G) - is_last_G]
    before_G = np.where(np.roll(is_last_G, 1), 0, np.roll(count_G, 1))
    matches_G = np.empty_like(count_G)
    matches_G[order_G] = np.minimum(count_G, np.where(is_last_G, before_G, most_G))
    return matches_G


def _log_penalties(length_N: np.ndarray) -> np.ndarray:
    """Return the logarithm of each text's brevity penalty, by the other text whose length is nearest to its own.

    Of two that are equally near, the shorter one counts.
    """
    order_N = np.argsort(length_N)
    sorted_N = length_N[order_N].astype(float)
    shorter_N, longer_N = np.append(-np.inf, sorted_N[:-1]), np.append(sorted_N[1:], np.inf)
    nearest_N = np.where(sorted_N - shorter_N <= longer_N - sorted_N, shorter_N, longer_N)
    penalties_N = np.empty(len(length_N))
    penalties_N[order_N] = np.minimum(0, 1 - nearest_N / np.maximum(sorted_N, 1))
    return penalties_N


def _ngrams(texts: Sequence[Sequence[str]], longest: int) -> Iterator[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield (n, text_G, ngram_G, count_G) for each n: the texts' n-grams, and how often each is in the text.

    n-grams are numbers, which ascend.
    """
    numbers: dict[str, int] = {}
    word_W = np.array([numbers.setdefault(word, len(numbers)) for text in texts for word in text], dtype=np.int64)
    text_W = np.repeat(np.arange(len(texts)), list(map(len, texts)))
    ngram_W = np.zeros_like(word_W)
    for n in range(1, longest + 1):
        end_W = word_W[n - 1 :]
        _, ngram_W = np.unique(ngram_W[: len(end_W)] * len(numbers) + end_W, return_inverse=True)
        first_W, last_W = text_W[: len(end_W)], text_W[n - 1 :]
        own_W = first_W == last_W
        pairs_W = ngram_W[own_W] * len(texts) + first_W[own_W]
        pairs_G, count_G = np.unique(pairs_W, return_counts=True)
        yield n, pairs_G % len(texts), pairs_G // len(texts), count_G
