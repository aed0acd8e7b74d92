"""Means over seeds or tasks: arithmetic ones, and geometric ones of perplexities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean


def mean(values: Sequence[float], *, log: bool) -> float:
    """Return the arithmetic mean, or the geometric one where `log`."""
    return math.exp(fmean(map(math.log, values))) if log else fmean(values)
