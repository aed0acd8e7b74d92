"""ROUGE: overlap of words between a generated text and its reference, by rouge-score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from emobench.errors import MetricError
from emobench.tasks.scores import Score

Variant = Literal["rouge1", "rouge2", "rougeL"]


def rouge(
    generated: Sequence[str],
    references: Sequence[str],
    ids: Sequence[str],
    *,
    variants: Sequence[Variant] = ("rouge1", "rouge2", "rougeL"),
    stemming: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Score]:
    """Return the mean F1 of each variant, as a fraction.

    An id may come several times (the samples of one prompt): its example holds their mean, weighted by their number.
    """
    from rouge_score.rouge_scorer import RougeScorer  # slow to import: it brings nltk

    if not generated:
        raise MetricError("There is no generated text to compute ROUGE of.")
    scorer = RougeScorer(list(variants), use_stemmer=stemming)
    totals: dict[str, dict[str, list[float]]] = {variant: {} for variant in variants}
    for done, (text, reference, key) in enumerate(zip(generated, references, ids, strict=True), start=1):
        found = scorer.score(reference, text)
        for variant in variants:
            totals[variant].setdefault(key, []).append(found[variant].fmeasure)
        if progress is not None:
            progress(done, len(generated))
    return {variant: _score(values) for variant, values in totals.items()}


def _score(values: dict[str, list[float]]) -> Score:
    count = sum(map(len, values.values()))
    return Score(
        value=sum(map(sum, values.values())) / count,
        n=len(values),
        higher_is_better=True,
        unit="fraction",
        examples={key: (sum(v) / len(v), float(len(v))) for key, v in values.items()},
    )
