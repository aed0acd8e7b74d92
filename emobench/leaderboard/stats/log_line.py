"""A line through scores over the logarithm of a size, with its 95 % band: how a score grows with a model or with data.

y = intercept + slope * log10(x), by least squares through the mean at each x. The band is that of the line's mean, by
Student's t with as many degrees of freedom as there are sizes beyond two: the spread around the line holds the noise of
seeds and items, and any curvature. With two sizes there is a line and no band; with one, neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from emobench.leaderboard.stats.classical import t_quantile


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A fitted line. `slope` is what the score gains with ten times the size."""

    intercept: float
    slope: float
    sizes: int
    slope_ci95: tuple[float, float] | None
    _centre: float
    _squares: float
    _error: float | None
    """The half width of the band at the centre, without 1 / sizes: t times the residual deviation."""

    def at(self, x: float) -> float:
        """Return the line at a size."""
        return self.intercept + self.slope * math.log10(x)

    def band(self, x: float) -> tuple[float, float] | None:
        """Return the 95 % interval of the line at a size; None with two sizes."""
        if self._error is None:
            return None
        half = self._error * math.sqrt(1 / self.sizes + (math.log10(x) - self._centre) ** 2 / self._squares)
        return self.at(x) - half, self.at(x) + half


def fit_log_line(scores: Mapping[float, Sequence[float]]) -> LogLine | None:
    """Fit a line to the scores at each size, a positive number; None below two sizes."""
    sizes, means = [], []
    for size, ys in scores.items():
        if ys:
            sizes.append(math.log10(size))
            means.append(fmean(ys))
    if len(sizes) < 2:
        return None
    centre, mean = fmean(sizes), fmean(means)
    squares = math.fsum((x - centre) ** 2 for x in sizes)
    slope = math.fsum((x - centre) * (y - mean) for x, y in zip(sizes, means, strict=True)) / squares
    freedom = len(sizes) - 2
    error = slope_ci95 = None
    if freedom:
        rest = math.fsum((y - mean - slope * (x - centre)) ** 2 for x, y in zip(sizes, means, strict=True))
        error = t_quantile(freedom, 0.975) * math.sqrt(rest / freedom)
        half = error / math.sqrt(squares)
        slope_ci95 = slope - half, slope + half
    return LogLine(
        intercept=mean - slope * centre,
        slope=slope,
        sizes=len(sizes),
        slope_ci95=slope_ci95,
        _centre=centre,
        _squares=squares,
        _error=error,
    )
