"""Margin: how far the answer's loss is below that of the next label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from emobench.tasks.scores import SECONDARY, Score


def margin_of(losses: Sequence[float]) -> float:
    """Return the second lowest loss minus the lowest one; 0 is a tie."""
    lowest, second = sorted(losses)[:2]
    return second - lowest


def margin(margins: Mapping[str, float], unit: str) -> Score:
    """Return the mean of the examples' margins, in the losses' unit.

    No side is better: a model may be far from the line, and on the wrong side of it.
    """
    return Score(
        value=sum(margins.values()) / len(margins),
        n=len(margins),
        higher_is_better=None,
        unit=unit,
        flags=(SECONDARY,),
        examples={key: (value, 1.0) for key, value in margins.items()},
    )
