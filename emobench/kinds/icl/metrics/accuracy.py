"""Accuracy: the share of examples that are answered rightly, of all alike or of groups alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from emobench.tasks.scores import SECONDARY, Score


def accuracy(right: Mapping[str, bool]) -> Score:
    """Return the share of True values, as a fraction; an example is 0 or 1."""
    return Score(
        value=sum(right.values()) / len(right),
        n=len(right),
        higher_is_better=True,
        unit="fraction",
        examples={key: (float(value), 1.0) for key, value in right.items()},
    )


def group_accuracy(right: Mapping[str, bool], groups: Mapping[str, str]) -> Score:
    """Return the mean over groups of the share of True values, as a fraction; `groups` names each example's.

    A group counts as much as any other, so that an example weighs 1 / (examples of its group). Of MMLU's 57 subjects
    it is the average that OpenCompass calls `mmlu`.
    """
    sizes = Counter(groups[key] for key in right)
    examples = {key: (float(value), 1 / sizes[groups[key]]) for key, value in right.items()}
    return Score(
        value=sum(hit * weight for hit, weight in examples.values()) / len(sizes),
        n=len(right),
        higher_is_better=True,
        unit="fraction",
        flags=(SECONDARY,),
        examples=examples,
    )
