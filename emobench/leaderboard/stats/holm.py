"""Holm's adjustment of p values for the number of tests in a family."""

from __future__ import annotations

from collections.abc import Sequence


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979), in their order."""
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, ps[index] * (len(ps) - rank)))
        adjusted[index] = highest
    return adjusted
