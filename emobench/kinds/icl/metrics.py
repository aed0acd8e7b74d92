"""Metrics of answers: accuracy over examples or groups, F1 by class, the margin, and the calibration error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emobench.tasks.scores import SECONDARY, Score

BINS = 15
"""Of the expected calibration error."""


def accuracy(right: Mapping[str, bool]) -> Score:
    """Return the share of True values, as a fraction; an example is 0 or 1."""
    examples = {key: (float(value), 1.0) for key, value in right.items()}
    value = sum(right.values()) / len(right)
    return Score(value=value, n=len(right), higher_is_better=True, unit="fraction", examples=examples)


def group_accuracy(right: Mapping[str, bool], groups: Mapping[str, str]) -> Score:
    """Return the mean over groups of the share of True values, as a fraction; `groups` names each example's.

    A group counts as much as any other, so that an example weighs 1 / (examples of its group). Of MMLU's 57 subjects
    it is the average that OpenCompass calls `mmlu`.
    """
    sizes = Counter(groups[key] for key in right)
    examples = {key: (float(value), 1 / sizes[groups[key]]) for key, value in right.items()}
    value = sum(hit * weight for hit, weight in examples.values()) / len(sizes)
    return _secondary(value, len(right), True, "fraction", examples=examples)


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

    def of_class(name: str) -> ClassScores:
        hits = sum(a == b == name for a, b in zip(right, answers, strict=True))
        support, answered = right.count(name), answers.count(name)
        precision, recall, f1 = _share(hits, answered), _share(hits, support), _share(2 * hits, answered + support)
        return ClassScores(name=name, precision=precision, recall=recall, f1=f1, support=support)

    return [of_class(name) for name in classes]


def macro_f1(right: Sequence[str], answers: Sequence[str], classes: Sequence[str]) -> Score:
    """Return the mean of F1 over the classes that stand among the right ones or the answers, as scikit-learn does."""
    found = [scores.f1 for scores in class_scores(right, answers, classes) if scores.f1 is not None]
    return _secondary(sum(found) / len(found), len(right), True, "fraction")


def margin_of(losses: Sequence[float]) -> float:
    """Return the second lowest loss minus the lowest one; 0 is a tie."""
    lowest, second = sorted(losses)[:2]
    return second - lowest


def margin(margins: Mapping[str, float], unit: str) -> Score:
    """Return the mean of the examples' margins, in the losses' unit.

    No side is better: a model may be far from the line, and on the wrong side of it.
    """
    examples = {key: (value, 1.0) for key, value in margins.items()}
    return _secondary(sum(margins.values()) / len(margins), len(margins), None, unit, examples=examples)


def calibration_error(confidences: Sequence[float], right: Sequence[bool], bins: int = BINS) -> Score:
    """Return the expected calibration error: how far confidence is from accuracy (Guo et al., ICML 2017, Eq. 3).

    It is the mean distance of accuracy and mean confidence over bins of equal width, weighted by their examples. Bin m
    of M holds confidences in ((m - 1) / M, m / M], the first one 0, too. A fraction; lower is better.
    """
    totals = [0.0] * bins  # of each bin: its confidences minus its right answers
    for confidence, hit in zip(confidences, right, strict=True):
        totals[min(max(math.ceil(confidence * bins), 1), bins) - 1] += confidence - hit
    return _secondary(math.fsum(map(abs, totals)) / len(right), len(right), False, "fraction")


def _secondary(
    value: float, n: int, better: bool | None, unit: str, *, examples: Mapping[str, tuple[float, float]] | None = None
) -> Score:
    """Return a score that decides nothing; without examples it is not a mean of them."""
    aggregate = "corpus" if examples is None else "mean"
    return Score(
        value=value, n=n, higher_is_better=better, unit=unit, flags=(SECONDARY,), examples=examples, aggregate=aggregate
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
