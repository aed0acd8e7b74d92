"""ROUGE: overlap of words between a generated text and its reference (Lin, 2004), as rouge-score computes it.

Its tokenizer and its F1 are rouge-score's own; the overlaps are counted here, because its table of the longest common
subsequence takes a step for each pair of words. The tests hold every F1 equal to rouge-score's, to the last bit.

The tokenizer keeps only a to z and 0 to 9. A reference whose letters are mostly not Latin has no score (`is_latin`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, get_args

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.metrics.words import MOST, is_latin, ngrams
from emobench.tasks.scores import Measure, Score

Variant = Literal["rouge1", "rouge2", "rougeL"]
LIN = "Lin, 2004"
ROUGE: dict[str, Measure] = {
    "rouge1": Measure(
        True,
        "fraction",
        title="ROUGE-1",
        definition="The overlap (F1) of words of a generated text with the human text.",
        source=LIN,
    ),
    "rouge2": Measure(
        True,
        "fraction",
        title="ROUGE-2",
        definition="The overlap (F1) of 2-grams of a generated text with the human text.",
        source=LIN,
    ),
    "rougeL": Measure(
        True,
        "fraction",
        title="ROUGE-L",
        definition="The F1 of the longest common subsequence of words of a generated text and the human text.",
        source=LIN,
    ),
}


def rouge(
    runs: Sequence[Sequence[str]],
    references: Sequence[str],
    ids: Sequence[str],
    *,
    variants: Sequence[Variant] = get_args(Variant),
    stemming: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Score]:
    """Return the mean F1 of each variant, as a fraction; each run holds a text for each reference, which `ids` name.

    References that the tokenizer cannot read are left out. Raises MetricError if these are more than half of them.
    """
    from rouge_score.scoring import fmeasure
    from rouge_score.tokenizers import DefaultTokenizer  # slow to import: it brings nltk

    if not any(runs):
        raise MetricError("There is no generated text to compute ROUGE of.")
    latin = list(map(is_latin, references))
    if latin.count(False) > MOST * len(latin):
        raise MetricError(
            f"ROUGE cannot read {latin.count(False)} of {len(latin)} references: its tokenizer (rouge-score) keeps "
            "only a to z and 0 to 9, and most of their letters are of other scripts."
        )
    words = DefaultTokenizer(use_stemmer=stemming).tokenize
    f1s_RN = {}
    for variant in variants:
        f1s_RN[variant] = np.zeros((len(runs), len(references)))
    for place, (reference, *texts) in enumerate(zip(references, *runs, strict=True)):
        reference_words = words(reference)
        overlaps = {}
        for variant in variants:
            overlaps[variant] = OVERLAPS[variant](reference_words)
        for run, text in enumerate(texts):
            text_words = words(text)
            for variant in variants:
                common, of_reference, of_text = overlaps[variant](text_words)
                f1s_RN[variant][run, place] = fmeasure(common / max(of_text, 1), common / max(of_reference, 1))
        if progress is not None:
            progress(place + 1, len(references))
    weights_RN = [latin] * len(runs)
    scores = {}
    for name in variants:
        scores[name] = mean_by_prompt(f1s_RN[name], ids, ROUGE[name], weights_RN=weights_RN)
    return scores


Overlap = Callable[[list[str]], tuple[int, int, int]]
"""Words of a text -> units in common with the reference, units of the reference, units of the text."""


def _ngrams(n: int, reference: list[str]) -> Overlap:
    """Units are n-grams; each counts as often as it stands in both."""
    expected = Counter(ngrams(reference, n))

    def overlap(text: list[str]) -> tuple[int, int, int]:
        own = Counter(ngrams(text, n))
        return (expected & own).total(), expected.total(), own.total()

    return overlap


def _subsequence(reference: list[str]) -> Overlap:
    """Units are words of the longest common subsequence.

    One row of its table at a time, as the bits of an integer (Hyyrö, 2004): a bit turns 0 where the length grows.
    """
    places: dict[str, int] = {}
    for place, word in enumerate(reference):
        places[word] = places.get(word, 0) | 1 << place
    ones = (1 << len(reference)) - 1

    def overlap(text: list[str]) -> tuple[int, int, int]:
        row = ones
        for word in text:
            matched = row & places.get(word, 0)
            row = ((row + matched) | (row - matched)) & ones
        return len(reference) - row.bit_count(), len(reference), len(text)

    return overlap


OVERLAPS: dict[Variant, Callable[[list[str]], Overlap]] = {
    "rouge1": partial(_ngrams, 1),
    "rouge2": partial(_ngrams, 2),
    "rougeL": _subsequence,
}
