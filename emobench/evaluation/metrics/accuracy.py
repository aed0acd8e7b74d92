"""Accuracy: the share of examples that are answered rightly."""

from __future__ import annotations

from collections.abc import Mapping

from emobench.tasks.scores import Score


def accuracy(right: Mapping[str, bool]) -> Score:
    """Return the share of True values, as a fraction; an example is 0 or 1."""
    return Score(
        value=sum(right.values()) / len(right),
        n=len(right),
        higher_is_better=True,
        unit="fraction",
        examples={key: (float(value), 1.0) for key, value in right.items()},
    )
