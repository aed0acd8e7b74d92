"""Metrics of answers: accuracy over examples or groups, F1 by class, the margin, and the calibration error."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from emobench.metrics.by_prompt import pseudo_values
from emobench.tasks.scores import Examples, Measure, Score

BINS = 15
"""Of the expected calibration error."""
MEASURES = {
    "accuracy": Measure(
        True, "fraction", title="Accuracy", definition="The share of examples that the model answers right."
    ),
    "group_accuracy": Measure(
        True,
        "fraction",
        secondary=True,
        title="Mean accuracy of groups",
        definition="The mean over groups of examples, such as subjects, of their accuracy.",
    ),
    "macro_f1": Measure(
        True,
        "fraction",
        secondary=True,
        title="Macro F1",
        definition="The mean over classes of F1, the harmonic mean of precision and recall.",
    ),
    "margin": Measure(
        None,
        "loss",
        secondary=True,
        title="Margin",
        definition="The second lowest loss of an example's answers minus the lowest one: how far the answer is "
        "from another one. Neither way is better.",
    ),
    "ece": Measure(
        False,
        "fraction",
        secondary=True,
        title="Calibration error",
        definition="The mean distance of confidence and accuracy over 15 bins of confidence.",
        source="Guo et al., ICML 2017",
    ),
}
"""The unit of a margin in an entry is that of the task's losses."""


def accuracy(right: Mapping[str, bool]) -> Score:
    """Return the share of True values, as a fraction; an example is 0 or 1."""
    examples = {key: (float(value), 1.0) for key, value in right.items()}
    value = sum(right.values()) / len(right)
    return MEASURES["accuracy"].score(value, len(right), examples=examples)


def group_accuracy(right: Mapping[str, bool], groups: Mapping[str, str]) -> Score:
    """Return the mean over groups of the share of True values, as a fraction; `groups` names each example's.

    A group counts as much as any other, so that an example weighs 1 / (examples of its group). Of MMLU's 57 subjects
    it is the average that OpenCompass calls `mmlu`.
    """
    sizes = Counter(groups[key] for key in right)
    examples = {key: (float(value), 1 / sizes[groups[key]]) for key, value in right.items()}
    value = sum(hit * weight for hit, weight in examples.values()) / len(sizes)
    return MEASURES["group_accuracy"].score(value, len(right), examples=examples)


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """One class: fractions, None if the divisor is 0 (never answered: no precision; never right: no recall).

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

    pairs = Counter(zip(right, answers, strict=True))
    scores = []
    for name in classes:
        hits, support, answered = pairs[name, name], right.count(name), answers.count(name)
        precision, recall, f1 = _share(hits, answered), _share(hits, support), _share(2 * hits, answered + support)
        scores.append(ClassScores(name=name, precision=precision, recall=recall, f1=f1, support=support))
    return scores


def macro_f1(
    right: Sequence[str], answers: Sequence[str], classes: Sequence[str], ids: Sequence[str] | None = None
) -> Score:
    """Return the mean of F1 over the classes that stand among the right ones or the answers, as scikit-learn does.

    `ids` name the examples: with them, the score has pseudo-values.
    """
    pairs = list(zip(right, answers, strict=True))
    hits = Counter(one for one, answer in pairs if one == answer)
    counts = Counter(right) + Counter(answers)

    def mean(left_out: Sequence[str] = ()) -> float:
        f1s = []
        for name in classes:
            count = counts[name] - left_out.count(name)
            if count:
                f1s.append(2 * (hits[name] - (left_out.count(name) == 2)) / count)
        return sum(f1s) / len(f1s) if f1s else math.nan

    value, examples = mean(), None
    if ids is not None:
        without = {pair: mean(pair) for pair in set(pairs)}
        examples = pseudo_values(value, ids, [without[pair] for pair in pairs])
    return _jackknife("macro_f1", value, len(right), examples)


def margin_of(losses: Sequence[float]) -> float:
    """Return the second lowest loss minus the lowest one; 0 is a tie."""
    lowest, second = sorted(losses)[:2]
    return second - lowest


def margin(margins: Mapping[str, float], unit: str) -> Score:
    """Return the mean of the examples' margins, in the losses' unit.

    No side is better: a model may be far from the line, and on the wrong side of it.
    """
    examples = {key: (value, 1.0) for key, value in margins.items()}
    measure = replace(MEASURES["margin"], unit=unit)
    return measure.score(sum(margins.values()) / len(margins), len(margins), examples=examples)


def calibration_error(
    confidences: Sequence[float], right: Sequence[bool], bins: int = BINS, ids: Sequence[str] | None = None
) -> Score:
    """Return the expected calibration error: how far confidence is from accuracy (Guo et al., ICML 2017, Eq. 3).

    It is the mean distance of accuracy and mean confidence over bins of equal width, weighted by their examples. Bin m
    of M holds confidences in ((m - 1) / M, m / M], the first one 0, too. A fraction; lower is better.
    `ids` name the examples: with them, the score has pseudo-values.
    """
    count = len(right)
    places = [min(max(math.ceil(confidence * bins), 1), bins) - 1 for confidence in confidences]
    gaps = [confidence - hit for confidence, hit in zip(confidences, right, strict=True)]
    totals = [0.0] * bins  # of each bin: its confidences minus its right answers
    for place, gap in zip(places, gaps, strict=True):
        totals[place] += gap
    distance = math.fsum(map(abs, totals))
    changes = [abs(totals[place] - gap) - abs(totals[place]) for place, gap in zip(places, gaps, strict=True)]
    examples = None
    if ids is not None:
        without = [(distance + change) / (count - 1) if count > 1 else math.nan for change in changes]
        examples = pseudo_values(distance / count, ids, without)
    return _jackknife("ece", distance / count, count, examples)


def _jackknife(name: str, value: float, n: int, examples: Examples | None) -> Score:
    aggregate = "corpus" if examples is None else "jackknife"
    return MEASURES[name].score(value, n, examples=examples, aggregate=aggregate)


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
