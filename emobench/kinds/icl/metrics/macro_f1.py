"""Precision, recall and F1 of each class, and macro-F1: the plain mean of F1 over the classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from emobench.tasks.scores import SECONDARY, Score


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """One class: fractions, None where nothing is divided by (never answered: no precision; never right: no recall).

    `f1` is 2 tp / (2 tp + fp + fn).
    """

    name: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    """Examples of which this class is right."""


def confusion_matrix(right: Sequence[str], answers: Sequence[str], classes: Sequence[str]) -> list[list[int]]:
    """Return counts, a row for each right class, a column for each answer."""
    counts = Counter(zip(right, answers, strict=True))
    return [[counts[row, column] for column in classes] for row in classes]


def class_scores(right: Sequence[str], answers: Sequence[str], classes: Sequence[str]) -> list[ClassScores]:
    """Return the scores of each class, in the order of `classes`."""
    matrix = confusion_matrix(right, answers, classes)
    found = []
    for place, name in enumerate(classes):
        hits, support = matrix[place][place], sum(matrix[place])
        answered = sum(row[place] for row in matrix)
        found.append(
            ClassScores(
                name=name,
                precision=_share(hits, answered),
                recall=_share(hits, support),
                f1=_share(2 * hits, answered + support),
                support=support,
            )
        )
    return found


def macro_f1(right: Sequence[str], answers: Sequence[str], classes: Sequence[str]) -> Score:
    """Return the mean of F1 over the classes that stand among the right ones or the answers, as scikit-learn does."""
    found = [scores.f1 for scores in class_scores(right, answers, classes) if scores.f1 is not None]
    return Score(
        value=sum(found) / len(found),
        n=len(right),
        higher_is_better=True,
        unit="fraction",
        flags=(SECONDARY,),
        aggregate="corpus",
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
