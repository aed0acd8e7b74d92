"""The variance of a mean over seeds and items, against scipy, statsmodels and what it estimates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from emobench.leaderboard.stats.random_effects import Uncertainty, crossed, over_items, unpaired


def sample(rng: np.random.Generator, seeds: int, items: int, seed_sd: float, item_sd: float) -> np.ndarray:
    """Return (S, I) values around 0 with residuals of spread 1; `item_sd` may be an array shared by callers."""
    seed_S1 = rng.normal(0, seed_sd, (seeds, 1))
    return seed_S1 + rng.normal(0, item_sd, items) + rng.normal(0, 1, (seeds, items))


@pytest.mark.parametrize("seeds", [3, 4, 5, 10])
@pytest.mark.parametrize("alpha", [0.05, 0.025, 0.05 / 6, 0.001, 0.0001])
def test_a_level_is_kept_far_below_5_percent(seeds: int, alpha: float) -> None:
    """Exact, by numerical integration over the seeds' estimated variance, whatever share they have of the true one."""
    df = seeds - 1
    x = np.exp(np.linspace(np.log(1e-9), np.log(60), 3001))
    weight = stats.chi2.pdf(x * df, df) * df * x * np.log(x[1] / x[0])
    rejected = []
    for share in (0.9999, 0.999, 0.99, 0.97, 0.95, 0.9, 0.8, 0.5, 0.2):
        coarse = x[::10]
        limits = [Uncertainty(((share * v, df), (1 - share, 10**6)), "seeds").critical(alpha) for v in coarse]
        limit = np.interp(x, coarse, limits)
        rejected.append(float((weight * 2 * stats.norm.sf(limit * np.sqrt(share * x + 1 - share))).sum()))
    assert max(rejected) <= 1.12 * alpha


def least_corrected(t: float, limit: float) -> float:
    """Return the smallest |t'| of a t away from the long side, over a fine grid of skewnesses up to the limit."""
    r = np.linspace(0, limit, 20_001)
    corrected = -abs(t) + r * t**2 / 3 - r**2 * abs(t) ** 3 / 27 + r / 6
    return max(0.0, -float(corrected.max()))


@pytest.mark.parametrize("skewness", [0.0, 0.05, 0.2, 0.45, 0.8, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_effect_away_from_the_long_side_counts_by_the_smallest_corrected_t(skewness: float, sign: int) -> None:
    found = Uncertainty(((4.0, 12),), "items", skewness_limits=(-skewness, 0.0) if sign < 0 else (0.0, skewness))
    for t in (0.3, 1.0, 2.5, 5.0, 12.0):
        away = least_corrected(t, skewness)
        assert found.p_value(-sign * 2 * t) == pytest.approx(2 * stats.t.sf(away, 12), rel=1e-3)
        assert found.p_value(sign * 2 * t) == pytest.approx(2 * stats.t.sf(t, 12), rel=1e-6)
        low, high = found.interval(-sign * 2 * t)
        assert (low <= 0 <= high) == (found.p_value(-sign * 2 * t) >= 0.05)
    low, high = found.interval(1.0)
    # At the ends of the interval p is 5 %.
    for true in (low, high):
        assert found.p_value(1.0 - true) == pytest.approx(0.05, rel=1e-5)


def skewness(values_I: np.ndarray) -> float:
    """Return the skewness of a mean of I items, by scipy's unbiased estimates."""
    return stats.kstat(values_I, 3) / len(values_I) ** 2 / (values_I.var(ddof=1) / len(values_I)) ** 1.5


def test_the_skewness_of_a_mean() -> None:
    rng = np.random.default_rng(31)
    values_I = rng.exponential(1, 25)
    found = over_items(values_I)
    assert found.skewness == pytest.approx(skewness(values_I))
    assert found.skewness_limits == pytest.approx((0, (1.4 + 150 / 25**2) * skewness(values_I)))
    symmetric = over_items(values_I, skewed=False)
    assert (symmetric.skewness, *symmetric.skewness_limits) == (0, 0, 0)
    # Seeds add variance, and no skewness.
    values_SI = values_I + np.array([[-1.0], [0.0], [1.0]])
    seeded = crossed(values_SI)
    variance = 1 / 3 + values_I.var(ddof=1) / 25
    assert seeded.standard_error**2 == pytest.approx(variance)
    assert seeded.skewness == pytest.approx(found.skewness * (values_I.var(ddof=1) / 25 / variance) ** 1.5)
    alone = unpaired((values_SI, np.zeros((3, 25))))
    assert alone.skewness == pytest.approx(seeded.skewness)


def test_seeds_that_are_close_by_chance_make_no_skewness() -> None:
    """Answers that vary with the seed alone: the variance for the skewness is at least that of the items' means."""
    rng = np.random.default_rng(33)
    values_SI = (rng.random((3, 100)) < 0.9).astype(float)
    values_SI -= values_SI.mean(1)[:, None]  # the seeds' part is nothing
    values_SI[:, 0] += np.array([-1e-3, 0, 1e-3])
    found = crossed(values_SI)
    assert abs(found.skewness) <= 1.05 * abs(skewness(values_SI.mean(0)))


def test_the_parts_are_those_of_a_two_way_analysis_of_variance() -> None:
    """Against statsmodels' table of seeds and items, without replication."""
    values_SI = sample(np.random.default_rng(18), 4, 12, 0.5, 0.7)
    frame = pd.DataFrame([(s, i, v) for s, row in enumerate(values_SI) for i, v in enumerate(row)], columns=list("siv"))
    table = anova_lm(ols("v ~ C(s) + C(i)", frame).fit())
    seeds, items, residual = table["mean_sq"]
    found = crossed(values_SI)
    assert found.parts == ((pytest.approx(seeds / 48), 3), (pytest.approx(max(items - residual, 0) / 48), 11))


def one_sided(rng: np.random.Generator, items: int, sign: int) -> np.ndarray:
    """Return (3, I) lognormal(1.5) values less their true mean, in their standard deviation, with small residuals."""
    item_I = (rng.lognormal(0, 1.5, items) - np.exp(1.125)) / np.sqrt((np.exp(2.25) - 1) * np.exp(2.25))
    return sign * item_I + rng.normal(0, 0.05, (3, items))


@pytest.mark.parametrize("sizes", [(10, 60), (60, 10), (12, 40, 200)])
def test_opposite_skewnesses_of_tasks_do_not_cancel(sizes: tuple[int, ...]) -> None:
    """p is the largest of Hall's corrected t over a grid of skewnesses between the limits, and the interval inverts it.

    To each side, the limit is that of the tasks' sum, or of one task alone, if that is more.
    """
    rng = np.random.default_rng(3)
    tasks = [one_sided(rng, items, sign) for items, sign in zip(sizes, (1, -1, 1), strict=False)]
    found = crossed(*tasks)
    variances = [float(stats.sem(task.mean(0))) ** 2 / len(tasks) ** 2 for task in tasks]
    limits, alone = [], []
    for task, items, variance in zip(tasks, sizes, variances, strict=True):
        third = stats.kstat(task.mean(0), 3) / items**2 / len(tasks) ** 3
        limits.append((1.4 + 150 / items**2) * third)
        even = sum(variances) * (1 / items) / sum(1 / other for other in sizes)
        alone.append(limits[-1] * (max(variance, even) / variance) ** 1.5)
    cubed = max(found.standard_error**2, sum(variances)) ** 1.5
    r = np.linspace(min(0.0, sum(limits), *alone) / cubed, max(0.0, sum(limits), *alone) / cubed, 40_001)
    assert r[0] < 0 < r[-1]
    plain = Uncertainty(found.parts, found.of)
    for t in (-4.0, -2.5, 2.5, 4.0):
        corrected = t + r * t**2 / 3 + r**2 * t**3 / 27 + r / 6
        least = max(np.sign(t) * corrected[np.sign(r) != np.sign(t)].min() if t > 0 else -corrected.max(), 0.0)
        want = plain.p_value(least * plain.standard_error)
        assert found.p_value(t * found.standard_error) == pytest.approx(want, rel=1e-3), t
    low, high = found.interval(0.7)
    assert [found.p_value(0.7 - end) for end in (low, high)] == pytest.approx([0.05, 0.05], rel=1e-6)


def test_a_task_without_items_that_differ_has_no_skewness() -> None:
    rng = np.random.default_rng(4)
    level, symmetric = np.full((3, 10), 0.3), np.tile([-1.0, 1.0], 20) + rng.normal(0, 0.1, (3, 1))
    found, alone = crossed(level, symmetric), crossed(symmetric)
    assert found.skewness_limits == pytest.approx((0, 0), abs=1e-9)
    assert found.p_value(0.2) == pytest.approx(alone.p_value(0.4), rel=1e-6)
