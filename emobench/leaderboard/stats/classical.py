"""Classical statistics: the level of a verdict, how many seeds and items it needs, quantiles, Holm, and McNemar's test.

There is a line through scores over the logarithm of a size, too: how a score grows with a model or with data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TypeAlias

import numpy as np

from emobench.leaderboard.stats.distributions import beta_below, beta_quantiles, coin_at_most, t_quantile

ALPHA = 0.05
"""The two-sided level of every test and, as 1 - ALPHA, of every interval."""
POWER = 0.8
"""The power at which a true difference counts as detectable."""
MIN_SEEDS = 3
"""Fewer cannot tell an objective from a lucky seed: with 2, one degree of freedom is left."""
MIN_ITEMS = 10
"""With 5 and many seeds, up to 9 % of true nulls are rejected at a nominal 5 % (simulated); from 10 on at most 7 %."""
SMALL_N_FLAG = "small_n"
"""Flags a metric of too few examples for a verdict or a rank."""


Interval: TypeAlias = tuple[float, float]
NORMAL = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


def bisected(
    low: float, high: float, is_low: Callable[[float], bool], *, absolute: float = 0.0, relative: float = 0.0
) -> Interval:
    """Return the bounds of the number below which `is_low` holds, that close to one another (`relative` to the upper).

    scipy.optimize is faster, but takes 0.2 s to import and is not installed with the base package.
    """
    while high - low > absolute + relative * high:
        middle = (low + high) / 2
        if is_low(middle):
            low = middle
        else:
            high = middle
    return low, high


def crossing(low: float, high: float, excess: Callable[[float], float]) -> float:
    """Return, to 1e-10, the number between two where a nearly linear function crosses 0 (secant method)."""
    last, number = low, high
    last_excess = excess(last)
    for _ in range(60):
        if abs(number - last) < 1e-10:
            break
        number_excess = excess(number)
        slope = (number_excess - last_excess) / (number - last)
        last, last_excess = number, number_excess
        number = min(max(number - number_excess / slope, low), high) if slope else low
    return number


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979), in their order."""
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, ps[index] * (len(ps) - rank)))
        adjusted[index] = highest
    return adjusted


MCNEMAR_MID_P = "McNemar, mid-p"
MCNEMAR_EXACT = "McNemar's test, exact"


def mcnemar_mid_p(only_a: int, only_b: int) -> float:
    """Return the two-sided mid-p value, from the counts of questions that only one side answers rightly.

    Exact up to the choice of mid-p (Fagerland, Lydersen & Laake, BMC Medical Research Methodology 13:91, 2013); 1 where
    both counts are 0.
    """
    fewer, discordant = min(only_a, only_b), only_a + only_b
    # Twice the probability of fewer, and half of that of as many.
    return min(1.0, coin_at_most(fewer - 1, discordant) + coin_at_most(fewer, discordant))


def mcnemar_exact(only_a: int, only_b: int) -> float:
    """Return the two-sided exact p value: of as many or fewer on the smaller side, among fair coins (McNemar, 1947).

    More conservative than mid-p, and what statsmodels' `mcnemar(exact=True)` and scipy's `binomtest` give.
    """
    return min(1.0, 2 * coin_at_most(min(only_a, only_b), only_a + only_b))


def mcnemar_interval(only_a: int, only_b: int, questions: int, *, mid_p: bool = False) -> Interval:
    """Return the 95 % interval of the difference of two accuracies: what the exact or the mid-p test does not reject.

    The difference is the share d of the questions that one side alone answers rightly, times 2 q - 1 with a's share q
    of these. The interval melds the confidence distributions of d and q, so that it excludes 0 exactly where p is at
    most 5 % (Fay & Lumbard, *Statistics in Medicine* 40, 2021).
    """
    return _lower(only_a, only_b, questions, mid_p), -_lower(only_b, only_a, questions, mid_p)


Distribution = Callable[[float], float]
_GRID = (np.arange(1_000) + 0.5) / 1_000
"""Probabilities over which a distribution is averaged."""


def _lower(only_a: int, only_b: int, questions: int, mid_p: bool) -> float:
    """Return the lower limit; by mid-p the distributions of both limits count half each."""
    lower = _melded(only_a, only_b, questions, 0)
    if not mid_p:
        return _quantile(lower, ALPHA / 2)
    upper = _melded(only_a, only_b, questions, 1)
    return _quantile(lambda difference: (lower(difference) + upper(difference)) / 2, ALPHA / 2)


def _melded(only_a: int, only_b: int, questions: int, side: int) -> Distribution:
    """Return the confidence distribution of the difference for its lower (side 0) or upper limit (1).

    Either limit of the difference takes the same limit of q, and that limit of d which is further to its side.
    """
    discordant = only_a + only_b
    of_q = only_a + side, only_b + 1 - side
    below_half = beta_below(*of_q, 0.5)
    towards_0 = discordant, questions - discordant + 1
    towards_1 = discordant + 1, questions - discordant
    negative, positive = (towards_1, towards_0) if side == 0 else (towards_0, towards_1)
    negative_Q = 2 * beta_quantiles(*of_q, below_half * _GRID) - 1
    positive_Q = 2 * beta_quantiles(*of_q, below_half + (1 - below_half) * _GRID) - 1

    def at_most(difference: float) -> float:
        if difference < 0:
            return below_half * float(np.mean(1 - _ratio_below(negative, difference, negative_Q)))
        return below_half + (1 - below_half) * float(np.mean(_ratio_below(positive, difference, positive_Q)))

    return at_most


def _ratio_below(of_d: tuple[int, int], difference: float, share_Q: np.ndarray) -> np.ndarray:
    """Return (Q,) probabilities that d is at most difference / (2 q - 1)."""
    limit_Q = np.divide(difference, share_Q, out=np.ones_like(share_Q), where=share_Q != 0)
    return beta_below(*of_d, np.clip(limit_Q, 0.0, 1.0))


def _quantile(distribution: Distribution, probability: float) -> float:
    """Return the difference that a distribution reaches with a probability; 0 is met exactly."""
    start = -1.0 if distribution(0.0) >= probability else 0.0
    low, high = bisected(start, start + 1.0, lambda middle: distribution(middle) < probability, absolute=1e-7)
    return (low + high) / 2


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A fitted line. `slope` is what the score gains with ten times the size.

    y = intercept + slope * log10(x), by least squares through the mean at each x. The band is that of the line's mean,
    by Student's t with as many degrees of freedom as there are sizes beyond two: the spread around the line holds the
    noise of seeds and items, and any curvature. With two sizes there is a line and no band; with one, neither.
    """

    intercept: float
    slope: float
    slope_ci95: Interval | None
    _covariance: np.ndarray | None
    """(2, 2), of slope and intercept, times the square of Student's t."""

    def at(self, x: float) -> float:
        """Return the line at a size."""
        return self.intercept + self.slope * math.log10(x)

    def band(self, x: float) -> Interval | None:
        """Return the 95 % interval of the line at a size; None with two sizes."""
        if self._covariance is None:
            return None
        place = np.array([math.log10(x), 1.0])
        half = math.sqrt(place @ self._covariance @ place)
        return self.at(x) - half, self.at(x) + half


def fit_log_line(scores: Mapping[float, Sequence[float]]) -> LogLine | None:
    """Fit a line to the scores at each size, a positive number; None below two sizes."""
    means = {math.log10(size): fmean(ys) for size, ys in scores.items() if ys}
    x_N, y_N = list(means), list(means.values())
    if len(x_N) < 2:
        return None
    covariance = slope_ci95 = None
    slope, intercept = map(float, np.polyfit(x_N, y_N, 1))
    if len(x_N) > 2:
        covariance = np.polyfit(x_N, y_N, 1, cov=True)[1] * t_quantile(len(x_N) - 2, 0.975) ** 2
        half = math.sqrt(covariance[0, 0])
        slope_ci95 = slope - half, slope + half
    return LogLine(intercept=intercept, slope=slope, slope_ci95=slope_ci95, _covariance=covariance)
