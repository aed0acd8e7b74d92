"""The random-effects model: how sure a mean is, when both the seeds and the evaluated items are samples.

Legend: S seeds, I items. Each seed s gives item i a value y_si.

**Model.** Two crossed random effects, y_si = mean + seed_s + item_i + residual_si: the same items are seen by every
seed. With the mean squares MS of seeds, items and residual (two-way analysis of variance without replication),
E[MS_seeds] = I v_seed + v_residual, E[MS_items] = S v_item + v_residual, E[MS_residual] = v_residual, so that

    variance of the mean = v_seed / S + v_item / I + v_residual / (S I) = (MS_seeds + MS_items - MS_residual) / (S I)

which counts the residual once (Searle, Casella & McCulloch, *Variance Components*, 1992, ch. 4). It is split into
MS_seeds / (S I), with S - 1 degrees of freedom, and max(MS_items - MS_residual, 0) / (S I), with I - 1.

**Critical value.** Between the Student t quantiles of the two parts, by the seeds' share w of the variance: t_items +
(t_seeds - t_items) w^e. With e = 1 it is Cochran and Cox's (*Experimental Designs*, 1950, par. 4.14), which rejects as
few as 2.9 % of true nulls at a nominal 5 % with 3 seeds; with 1.25 it rejects 3.5 to 5.3 % (exact, by numerical
integration over w, 3 seeds or more and many items; simulated with 10 items or more, at most 7 %, and fewer where
accuracies are near 0 or 1). Satterthwaite's degrees of freedom are the usual choice and are wrong here: with 3 seeds
they reject up to 8 %, with 2 seeds up to 13 %, because a seed mean square on 1 or 2 degrees of freedom is often near
zero by chance. A t test over the seeds alone ignores v_item: it rejects the more, the smaller the noise of seeds and
residuals is relative to it (67 % in one simulation).

Below 5 %, where an adjustment for several tests looks, 1.25 is too large: with 3 seeds it rejects 1.6 times the nominal
0.8 %, and 3.6 times 0.1 %, where nearly all of the noise is of seeds. So e falls with the level, the more the fewer the
seeds are: e = 1.25 (alpha / 5 %)^(0.45 / df), at least 0.55. It then rejects at most 1.1 times the nominal level from
5 % to 0.01 % (exact likewise, 3 seeds or more; `tests/emobench/leaderboard/stats/test_random_effects.py`).

**Unequal weights.** Of I items with shares h_i of the weight, as many tell how items vary as 1 / sum h_i^2 equal ones:
the items' degrees of freedom are that number less 1. With the values of `series.linearise`, at most 5.2 % of true
nulls are rejected, down to 10 items of which one has most of the weight; with I - 1 up to 10 %.

**Skewness.** Where items differ to one side, t is skewed to the other: a sample without the rare large items has a mean
too far from them, and too small a standard error. Johnson's series, made monotone by Hall (*Journal of the Royal
Statistical Society B* 54, 1992), corrects it by the skewness r of the mean, the items' third cumulant / (I^2
standard_error^3): t' = t + r t^2 / 3 + r^2 t^3 / 27 + r / 6. A sample shows less skewness than there is, the less the
fewer its items are. So the estimate times 1.4 + 150 / I^2 is taken for a limit R of r, and an effect away from the long
side of the items counts by the smallest t' of any r from 0 to R; an effect towards it counts by t. Where the estimate
is 0.5 or more, as if fewer than four items differed from the others, an effect away from the long side that t alone
would call significant is undetermined. The interval holds what the test does not reject. The interval of one row, which
decides nothing, stays symmetric. Of items that are lognormal(1.5) at most 7 % of true nulls are rejected, from 10 items
on; of lognormal(2), whose skewness of 400 no such sample shows, up to 14 % of 10 items and 8 % of 60.

In a mean over tasks, opposite skewnesses would cancel, although the limit of each is uncertain. And a task without its
rare large items shows too small a part of the variance beside the others. So the limit to either side is no less than
that of each task alone, whose part of the items' variance counts as at least its part of the sum of 1 / I. Without
this, up to 13 % of true nulls are rejected where one task has 10 items and the other 60; with it at most 5 %.

**Items that all differ alike.** If a few items in a hundred change, many samples of 60 have none of them: all their
items are alike but for the residuals, and nothing tells how items vary. `alike` finds such samples.

`tests/benchmarks/evidence/null_comparisons.py` simulates all of this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

from emobench.leaderboard.entry import ROUNDING
from emobench.leaderboard.stats.classical import ALPHA, POWER, Interval, bisected, crossing
from emobench.leaderboard.stats.distributions import beta_below, chi2_quantile, noncentrality, t_below, t_quantile

Array: TypeAlias = np.ndarray
Randomness: TypeAlias = Literal["seeds and items", "seeds", "items"]
Part: TypeAlias = tuple[float, float]
"""A variance and its degrees of freedom."""

MOST_SKEWNESS = 0.5
"""From this skewness of a mean on, an effect away from the long side is undetermined. k items of many alone: k^-0.5."""
EXPONENT, LEAST_EXPONENT = 1.25, 0.55
SMALLEST_P = 1e-100  # beyond it the t quantiles of a few degrees of freedom overflow
SAME_SEEDS = "the seeds of either side do not differ (one step, or nothing random), so that no noise can be estimated"
SAME_AMOUNT = "every seed differs by the same amount, so that no noise can be estimated"
ALIKE = "all examples differ by about the same amount: they do not show how examples vary"
SKEWED = "few examples differ much more than the others, to the other side: there are too few to tell the mean"


@dataclass(frozen=True)
class Uncertainty:
    """The variance of a mean, as parts, the randomness that it covers, and the mean's own skewness.

    `skewness_limits` are how far that may be from 0 to the left (0 or less) and to the right (0 or more).
    """

    parts: tuple[Part, ...]
    of: Randomness
    skewness: float = 0.0
    skewness_limits: Interval = (0.0, 0.0)
    residual: float = 0.0
    """How much of the first part, the seeds', is the residual's variance: more items reduce that, too."""
    fixed: int = 0
    """How many of the last parts neither more seeds nor more items reduce."""

    @property
    def standard_error(self) -> float:
        return math.sqrt(sum(variance for variance, _ in self.parts))

    def critical(self, alpha: float = ALPHA) -> float:
        """Return the two-sided critical value of mean / standard_error."""
        return self._between(lambda df: -t_quantile(df, alpha / 2), alpha)

    def _between(self, of: Callable[[float], float], alpha: float = ALPHA) -> float:
        """Return a value between those that a function has for the degrees of freedom of each part."""
        (df, scarce), *rest = sorted((df, variance) for variance, df in self.parts)
        highest = of(df)
        plenty = weighted = 0.0
        for other, variance in rest:
            plenty += variance
            weighted += variance * of(other)
        if plenty == 0:
            return highest
        lowest = weighted / plenty
        return lowest + (highest - lowest) * (scarce / (scarce + plenty)) ** exponent(alpha, df)

    def p_value(self, effect: float) -> float:
        """Return the two-sided p of an effect against 0: the alpha whose critical value it reaches."""
        t = self._least(effect / self.standard_error)
        if t == 0:
            return 1.0
        # Each part alone would give such a p; that of their sum lies between them.
        ps = []
        for _, df in self.parts:
            ps.append(max(2 * t_below(df, -t), SMALLEST_P))
        low, high = min(ps), max(ps)
        if low == high:
            return low
        log_p = crossing(math.log(low), math.log(high), lambda log: math.log(self.critical(math.exp(log)) / t))
        return min(max(math.exp(log_p), low), high)

    def interval(self, effect: float) -> Interval:
        """Return the 95 % interval around an effect: the true values that the test does not reject."""
        t = self.critical()
        below, above = self._reaching(t, 1), self._reaching(t, -1)
        return effect - below * self.standard_error, effect + above * self.standard_error

    def hidden(self, effect: float) -> bool:
        """Return whether t calls an effect significant that unseen items of the long side could undo."""
        away = effect * self.skewness < 0 and abs(self.skewness) >= MOST_SKEWNESS
        return away and abs(effect) > self.critical() * self.standard_error

    def _least(self, t: float) -> float:
        """Return the smallest absolute t' of any skewness up to the limits, 0 where one turns the sign."""
        left, right = self.skewness_limits
        size, limit = abs(t), -left if t > 0 else right
        if size == 0 or limit == 0:
            return size
        turning = 13.5 * (size**2 / 3 + 1 / 6) / size**3
        r = min(limit, turning)
        return max(size - r * size**2 / 3 + r**2 * size**3 / 27 - r / 6, 0.0)

    def _reaching(self, least: float, sign: int) -> float:
        """Return the absolute t of an effect with this sign, of which `_least` is this much."""
        left, right = self.skewness_limits
        if (left if sign > 0 else right) == 0:
            return least
        highest = 4 * least + 2  # of any skewness, t' is more than (|t| - 1) / 4
        _, high = bisected(least, highest, lambda t: self._least(sign * t) < least, relative=1e-9)
        return high

    @property
    def detectable(self) -> float:
        """The true difference that a two-sided 5 % test of this size detects with a power of 80 %: an estimate.

        It is too large in half of all experiments, and too small in the others. Skewness is not in it.
        """
        return self.detectable_limit(0.5)

    @property
    def detectable_ci95(self) -> Interval:
        """The 95 % interval of `detectable`: with 3 seeds, the standard error has two degrees of freedom."""
        return self.detectable_limit(ALPHA / 2), self.detectable_limit(1 - ALPHA / 2)

    def detectable_limit(self, confidence: float) -> float:
        """Return an upper limit of `detectable`: that of the standard error, times the noncentrality that t needs."""
        limit = Uncertainty(upper_limit(self.parts, confidence), self.of)
        return limit.noncentrality() * limit.standard_error

    def noncentrality(self, alpha: float = ALPHA) -> float:
        """Return the true difference, in standard errors, at which the two-sided test has a power of 80 %."""
        return self._between(lambda df: noncentrality(df, -t_quantile(df, alpha / 2), 1 - POWER), alpha)


def exponent(alpha: float, df: float) -> float:
    """Return the power of the seeds' share of the variance, by which a critical value lies between the parts' own."""
    return max(LEAST_EXPONENT, EXPONENT * min(1.0, alpha / ALPHA) ** (0.45 / df))


def upper_limit(parts: tuple[Part, ...], confidence: float) -> tuple[Part, ...]:
    """Return parts whose sum is an upper limit of the true variance; a confidence of 0.5 gives its median estimate.

    The modified large-sample limit of a sum of variances: the sum of the estimates and the root of the squared
    distances of each one's own chi-square limit (Graybill & Wang, *JASA* 75, 1980); each part takes its share of that.
    """
    beyond = []
    for variance, df in parts:
        beyond.append(variance * (df / chi2_quantile(df, 1 - confidence) - 1))
    root = math.copysign(math.hypot(*beyond), sum(beyond))
    if not root:
        return parts
    limits = []
    for (variance, df), own in zip(parts, beyond, strict=True):
        limits.append((variance + own**2 / root, df))
    return tuple(limits)


def crossed(
    *values_SI_of: Array, effective: Sequence[float] = (), skewed: bool = True, members: Sequence[Array] = ()
) -> Uncertainty | None:
    """Return the uncertainty of a mean, or of the mean of several tasks' means; None if there is no spread at all.

    Each task has S >= 2 seeds, the same for all, by its own I >= 2 items. A seed moves all tasks together, so that its
    part is that of the tasks' mean for each seed; items are drawn for each task apart. `effective` is how many items of
    equal weight would be worth each task's; without it, its own are equal. Without `skewed` items count as symmetric.
    `members` are the (I,) mean differences of the tasks before those that share items were joined, if any were.
    """
    seed_means, means, residuals = [], [], []
    for values_SI in values_SI_of:
        seed_means.append(values_SI.mean(1))
        means.append(values_SI.mean(0))
        residuals.append(residual_square(values_SI) / len(values_SI))
    of_seeds = _part(np.mean(seed_means, axis=0))
    return _of_both(of_seeds, values_SI_of, means, residuals, effective, means if skewed else (), members)


def unpaired(
    *pairs: tuple[Array, Array], effective: Sequence[float] = (), members: Sequence[Array] = ()
) -> Uncertainty | None:
    """Return the uncertainty of mean(a) - mean(b) for other seeds of each; of several tasks, of the mean over them.

    A task's pair is (S_a, I) and (S_b, I) for the same items. The seeds' part is Welch's, with his degrees of freedom;
    the items' part is what their mean differences vary by beyond the residuals. `effective` and `members`
    are those of `crossed`.
    """
    seed_means_a, seed_means_b, means, residuals, values = [], [], [], [], []
    for a_SI, b_SI in pairs:
        seed_means_a.append(a_SI.mean(1))
        seed_means_b.append(b_SI.mean(1))
        means.append(a_SI.mean(0) - b_SI.mean(0))
        residuals.append(residual_square(a_SI) / len(a_SI) + residual_square(b_SI) / len(b_SI))
        values += [a_SI, b_SI]
    of_seeds = _welch(np.mean(seed_means_a, axis=0), np.mean(seed_means_b, axis=0))
    return _of_both(of_seeds, values, means, residuals, effective, means, members)


def _of_both(
    of_seeds: Part,
    values: Sequence[Array],
    means: Sequence[Array],
    residuals: Sequence[float],
    effective: Sequence[float],
    skewed: Sequence[Array],
    members: Sequence[Array],
) -> Uncertainty | None:
    """Return the uncertainty that seeds and items give.

    `means` are (I,) for each task, `residuals` how much of their variance is the residual's.
    """
    parts, of_residuals = [of_seeds], 0.0
    for mean_I, residual, items in zip(means, residuals, effective or map(len, means), strict=True):
        count = len(mean_I) * len(means) ** 2
        parts.append((max(float(mean_I.var(ddof=1)) - residual, 0.0) / count, max(items - 1, 1.0)))
        of_residuals += residual / count
    uncertainty = _uncertain(tuple(parts), "seeds and items", *values, item_means=skewed, members=members)
    return uncertainty and replace(uncertainty, residual=of_residuals)


def unpaired_seeds(a_S: Array, b_S: Array) -> Uncertainty | None:
    """Return the uncertainty of mean(a) - mean(b) of two independent samples (Welch)."""
    return _uncertain((_welch(a_S, b_S),), "seeds", a_S, b_S)


def over_items(values_I: Array, effective: float | None = None, *, skewed: bool = True) -> Uncertainty | None:
    """Return the uncertainty of the mean of I items; `effective` and `skewed` are those of `crossed`."""
    items = effective or len(values_I)
    part = float(values_I.var(ddof=1)) / len(values_I), max(items - 1, 1.0)
    return _uncertain((part,), "items", values_I, item_means=[values_I] if skewed else ())


def over_seeds(values_S: Array) -> Uncertainty | None:
    """Return the uncertainty of the mean of S independent values."""
    return _uncertain((_part(values_S),), "seeds", values_S)


def _part(values_S: Array) -> Part:
    return float(values_S.var(ddof=1)) / len(values_S), len(values_S) - 1


def without_spread(
    left_S: Array, right_S: Array, items: Sequence[tuple[Array, Array]], *, paired: bool, log: bool
) -> str | None:
    """Return why seeds show no noise, where their spread is nothing but float rounding; else None."""
    # A logarithm's spread is relative to its number as it is.
    limit = ROUNDING * (1.0 if log else float(np.abs([*left_S, *right_S]).max()))
    most = [0.0, 0.0, 0.0]
    for left, right in [(left_S, right_S), *items]:
        for place, values in enumerate((left, right, left - right if paired else left)):
            # The variance of a score over seeds, or what theirs of single items leave in it if it is more.
            variance = float(values.var(axis=0, ddof=1).mean()) / values[0].size
            most[place] = max(most[place], math.sqrt(variance))
    if max(most[:2]) <= limit:
        return SAME_SEEDS
    return SAME_AMOUNT if paired and most[2] <= limit else None


def alike(items: Sequence[tuple[Array, Array]], reach: float, *, paired: bool) -> bool:
    """Return whether the items of every task differ by the same amount, which unseen ones could undo.

    They do where neither their differences nor the values of a side vary beyond the residuals (F test, 5 %), and the
    difference is larger than a residual's standard deviation. With I items a share of 1 - 0.05^(1 / I) may well be
    unseen; `reach` is the largest difference that an item can have.
    """
    for left_SI, right_SI in items:
        samples = [left_SI - right_SI] if paired else [left_SI, -right_SI]
        effect, unseen = abs(float(left_SI.mean() - right_SI.mean())), 1 - ALPHA ** (1 / left_SI.shape[1])
        residual = sum(map(residual_square, samples))
        if effect > reach * unseen / (1 - unseen) or effect <= math.sqrt(residual):
            return False
        if _vary(left_SI) or _vary(right_SI) or _vary(*samples):
            return False
    return True


def _vary(*samples: Array) -> bool:
    """Return whether items vary, in the sum of the samples' means, more than the residuals make them."""
    count, fewest = samples[0].shape[1], min(map(len, samples))
    of_residuals, mean_I = 0.0, np.zeros(count)
    for values_SI in samples:
        of_residuals += residual_square(values_SI) / len(values_SI)
        mean_I += values_SI.mean(0)
    squares, squares_rest = float(mean_I.var(ddof=1)), (fewest - 1) * of_residuals
    if squares == 0:
        return False
    # The F test: such a share of the squares is a beta variable.
    share = squares / (squares + squares_rest)
    below = beta_below((count - 1) / 2, (count - 1) * (fewest - 1) / 2, share)
    return float(below) > 1 - ALPHA


def items_variance(values_SI: Array) -> float:
    """Return the variance of a mean over I items that is due to the items; of S > 1 seeds, to what they have in common.

    Of one seed the residual is in it. May be below 0, where the items differ less than by chance.
    """
    residual = residual_square(values_SI) / len(values_SI) if len(values_SI) > 1 else 0.0
    return (float(values_SI.mean(0).var(ddof=1)) - residual) / values_SI.shape[1]


def residual_square(values_SI: Array) -> float:
    """Return the mean square of the residual."""
    seeds, items = values_SI.shape
    residual_SI = values_SI - values_SI.mean(1)[:, None] - values_SI.mean(0) + values_SI.mean()
    return float(np.square(residual_SI).sum()) / ((seeds - 1) * (items - 1))


def _welch(a_S: Array, b_S: Array) -> Part:
    """Return the variance of a difference of means and its degrees of freedom (Welch, Biometrika 34, 1947)."""
    (a, a_df), (b, b_df) = _part(a_S), _part(b_S)
    squares = a**2 / a_df + b**2 / b_df
    return a + b, (a + b) ** 2 / squares if squares else 1.0


def _uncertain(
    parts: tuple[Part, ...],
    of: Randomness,
    *values: Array,
    item_means: Sequence[Array] = (),
    members: Sequence[Array] = (),
) -> Uncertainty | None:
    """Return None if the spread is nothing but rounding: an interval of no width would claim certainty.

    Joined tasks have the limits of the skewness of both: together, opposite ones would cancel again.
    """
    rounding = (1e-12 * max(float(np.abs(array).max()) for array in values)) ** 2
    variance = sum(variance for variance, _ in parts)
    if variance <= rounding:
        return None
    skewness, limits = _skewness(item_means, variance, rounding) if item_means else (0.0, (0.0, 0.0))
    if members:
        _, apart = _skewness(members, variance, rounding)
        limits = min(limits[0], apart[0]), max(limits[1], apart[1])
    return Uncertainty(parts, of, skewness, limits)


def _skewness(item_means: Sequence[Array], variance: float, rounding: float) -> tuple[float, Interval]:
    """Return the skewness of a mean over T tasks whose variance is this, and its limits to the left and to the right.

    `item_means` are (I,) for each task; tasks whose items vary by rounding alone have no skewness.
    """
    tasks = len(item_means)
    items_T = np.array(list(map(len, item_means)))
    variance_T = np.array([float(mean_I.var(ddof=1)) for mean_I in item_means])
    variance_T = variance_T / items_T / tasks**2
    third_T = np.zeros(tasks)  # third cumulants of the tasks' means
    for task, mean_I in enumerate(item_means):
        items = len(mean_I)
        if items > 2 and variance_T[task] > rounding:
            third_T[task] = float(((mean_I - mean_I.mean()) ** 3).mean()) / ((items - 1) * (items - 2)) / tasks**3
    limit_T = (1.4 + 150 / items_T**2) * third_T
    even_T = variance_T.sum() / items_T / (1 / items_T).sum()  # if the items of all tasks varied alike
    missed_T = np.divide(even_T, variance_T, out=np.ones(tasks), where=variance_T > rounding)
    alone_T = limit_T * np.maximum(missed_T, 1.0) ** 1.5
    # The seeds' part may be near zero by chance; items with their residuals are the least variance that there is.
    cubed = max(variance, float(variance_T.sum())) ** 1.5
    together = float(limit_T.sum())
    left, right = min(together, float(alone_T.min()), 0.0), max(together, float(alone_T.max()), 0.0)
    return float(third_T.sum()) / cubed, (left / cubed, right / cubed)
