"""Repetition: within a text (rep-n, diversity), and within the texts of a sampling run (distinct-n).

    rep-n       1 - different n-grams / n-grams of a text; over texts, weighted by their n-grams
    diversity   (1 - rep-2) (1 - rep-3) (1 - rep-4)
    distinct-n  different n-grams of all texts of a run / words of these texts

n-grams are of words of the continuation, words are what stands between white space, so that tokenizers do not differ,
and no n-gram goes from one text into the next. The authors' code of rep-n and diversity (Su et al., NeurIPS 2022,
SimCTG, simctg/evaluation.py) does not count the last n-gram of a text and gives percent; every n-gram counts here, and
values are fractions. distinct-n (Li et al., NAACL 2016) falls with the number of texts, since new texts bring fewer new
words: compare runs of equally many.

Scripts without spaces between words have no such words: a continuation in one has no rep-n, and runs whose letters are
mostly of such scripts have none of these metrics (`scripts.has_spaces`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt
from emobench.metrics.scripts import has_spaces
from emobench.tasks.scores import Measure, Score

REPEATED, DISTINCT = (2, 3, 4), (1, 2, 3)
"""The orders n."""
REPETITION = {f"rep_{n}": Measure(False, "fraction", secondary=True) for n in REPEATED}
REPETITION["diversity"] = Measure(True, "fraction", secondary=True)
DISTINCTNESS = {f"distinct_{n}": Measure(True, "fraction", secondary=True) for n in DISTINCT}


def words_of(text: str) -> list[str]:
    """Return the words of a text, upper and lower case as they stand, with the punctuation that sticks to them."""
    return text.split()


def require_spaces(runs: Sequence[Sequence[str]]) -> None:
    """Raise MetricError for runs whose letters are mostly of scripts without spaces between words."""
    if not all(map(has_spaces, runs)):
        raise MetricError(
            "Most letters of a sampling run are of a script without spaces between words, such as Chinese or Thai: "
            "its words, and their n-grams, cannot be counted."
        )


def ngrams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """Yield each n words that stand together, in order."""
    return zip(*(words[i:] for i in range(n)), strict=False)


def repetition(runs: Sequence[Sequence[str]], ids: Sequence[str]) -> dict[str, Score]:
    """Return rep_2, rep_3, rep_4 and diversity of the continuations of each run, one of each prompt that `ids` name.

    Texts of fewer than n words say nothing of rep-n. Raises MetricError if none of a run is that long.
    """
    require_spaces(runs)
    words = [[words_of(text) if has_spaces([text]) else [] for text in run] for run in runs]
    longest = REPEATED[-1]
    if not all(any(len(text) >= longest for text in run) for run in words):
        raise MetricError(f"No continuation of a sampling run has {longest} words, so that no {longest} can repeat.")
    found = {f"rep_{n}": _repeated(words, ids, n) for n in REPEATED}
    scores = list(found.values())
    by_run = zip(*(score.repeats for score in scores), strict=True)
    diversity = corpus_by_run(
        [math.prod(1 - value for (value,) in run) for run in by_run],
        min(score.n for score in scores),
        REPETITION["diversity"],
        value=math.prod(1 - score.value for score in scores),
        ids=ids,
        without_N=np.prod([1 - _without_each(score, ids) for score in scores], axis=0),
    )
    return {**found, "diversity": diversity}


def _without_each(mean: Score, ids: Sequence[str]) -> np.ndarray:
    """Return a weighted mean over prompts without each of them, (N,); nan where no other has a weight."""
    examples = mean.examples or {}
    value_N, weight_N = np.array([examples.get(key, (0.0, 0.0)) for key in ids]).T
    others_N = weight_N.sum() - weight_N
    sums_N = (value_N * weight_N).sum() - value_N * weight_N
    return np.divide(sums_N, others_N, out=np.full(len(ids), np.nan), where=others_N > 0)


def _repeated(words: list[list[list[str]]], ids: Sequence[str], n: int) -> Score:
    counts = [[max(len(text) - n + 1, 0) for text in run] for run in words]
    values = [[1 - len(set(ngrams(text, n))) / max(len(text) - n + 1, 1) for text in run] for run in words]
    return mean_by_prompt(values, ids, REPETITION[f"rep_{n}"], weights_RN=counts)


def distinct(runs: Sequence[Sequence[str]], ids: Sequence[str] | None = None) -> dict[str, Score]:
    """Return distinct_1, distinct_2 and distinct_3, the means over the runs; MetricError if a run has no word.

    `ids` name the prompts where text i of every run continues prompt i: with them, the scores have pseudo-values.
    """
    require_spaces(runs)
    words = [[words_of(text) for text in run] for run in runs]
    totals = [sum(map(len, run)) for run in words]
    if not totals or not all(totals):
        raise MetricError("All continuations of a sampling run are empty: there is no word to count.")
    found = {}
    for n, (name, measure) in zip(DISTINCT, DISTINCTNESS.items(), strict=True):
        shares, without_RN = zip(*(_distinct(run, n) for run in words), strict=True)
        found[name] = corpus_by_run(shares, len(words[0]), measure, ids=ids, without_N=np.mean(without_RN, axis=0))
    return found


def _distinct(texts: Sequence[Sequence[str]], n: int) -> tuple[float, np.ndarray]:
    """Return distinct-n of a run, and that without each of its texts, (N,); nan where no other text has a word."""
    of_texts = [set(ngrams(text, n)) for text in texts]
    holders = Counter(ngram for of_text in of_texts for ngram in of_text)
    alone_N = np.array([sum(holders[ngram] == 1 for ngram in of_text) for of_text in of_texts])
    words_N = np.array([len(text) for text in texts])
    others_N = words_N.sum() - words_N
    without_N = np.full(len(texts), np.nan)
    np.divide(len(holders) - alone_N, others_N, out=without_N, where=others_N > 0)
    return len(holders) / int(words_N.sum()), without_N
