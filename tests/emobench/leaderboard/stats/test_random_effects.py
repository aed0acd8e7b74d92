"""The variance of a mean over seeds and items, against scipy, statsmodels and what it estimates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.classical import fit_log_line
from emobench.leaderboard.stats.random_effects import (
    Uncertainty,
    alike,
    crossed,
    exponent,
    over_items,
    unpaired,
    without_spread,
)


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


# Critical values, detectable differences and limits of spread, each worked out here by scipy's distributions.

Parts = tuple[tuple[float, float], ...]
SEEDS_FIRST: Parts = ((2.0, 2), (1.0, 49), (0.5, 19))
"""A mean over two tasks: the seeds' part, and the items' of each task."""
PARTS: list[Parts] = [
    SEEDS_FIRST,
    SEEDS_FIRST[::-1],
    ((0.3, 2), (1.0, 99)),
    ((0.5, 29), (1.0, 11)),  # many seeds, few items
    ((0.0, 2), (1.0, 99)),
    ((1.0, 2), (0.0, 99)),
    ((1.0, 4),),
]


def between(parts: Parts, of: Callable[[float], float], alpha: float) -> float:
    """Return what lies between the values of the scarcest degrees of freedom and the mean value of the others."""
    ordered = sorted((df, variance) for variance, df in parts)
    (df, scarce), others = ordered[0], ordered[1:]
    total = sum(variance for _, variance in ordered)
    if total == scarce:
        return of(df)
    mean = sum(variance * of(other) for other, variance in others) / (total - scarce)
    power = max(0.55, 1.25 * min(1.0, alpha / 0.05) ** (0.45 / df))
    return mean + (of(df) - mean) * (scarce / total) ** power


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 1e-4])
def test_a_critical_value_lies_between_the_quantiles_of_the_parts(parts: Parts, alpha: float) -> None:
    found = Uncertainty(parts, "seeds and items")
    expected = between(parts, lambda df: stats.t.isf(alpha / 2, df), alpha)
    assert found.critical(alpha) == pytest.approx(expected)
    error = math.sqrt(sum(variance for variance, _ in parts))
    assert found.standard_error == pytest.approx(error)
    for sign in (1, -1):
        assert found.p_value(sign * expected * error) == pytest.approx(alpha, rel=1e-6)
    if alpha == 0.05:
        assert found.interval(7.0) == pytest.approx((7 - expected * error, 7 + expected * error))


@pytest.mark.parametrize("parts", PARTS)
def test_p_is_in_0_to_1_whatever_the_effect(parts: Parts) -> None:
    found = Uncertainty(parts, "seeds and items")
    assert found.p_value(0.0) == 1.0
    assert found.p_value(1e-9) == pytest.approx(1.0, abs=1e-6)
    assert 1e-100 <= found.p_value(1e60) <= 1e-60


def test_an_exponent_has_a_lowest_value() -> None:
    assert exponent(1e-30, 1) == 0.55
    assert exponent(0.01, 2) == pytest.approx(1.25 * 0.2**0.225)
    assert exponent(0.5, 2) == 1.25


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("confidence", [0.5, 0.025, 0.975])
def test_a_detectable_difference_is_a_limit_of_the_error_times_a_noncentrality(parts: Parts, confidence: float) -> None:
    """The limit of a sum of variances is Graybill and Wang's; its parts take their shares of the distance."""
    distances = [v * (df / stats.chi2.isf(confidence, df) - 1) for v, df in parts]
    root = math.sqrt(sum(distance**2 for distance in distances)) * math.copysign(1, sum(distances))
    limits = tuple((v + d**2 / root, df) for (v, df), d in zip(parts, distances, strict=True))
    total = sum(v for v, _ in parts) + root
    assert sum(v for v, _ in limits) == pytest.approx(total)
    found = Uncertainty(parts, "seeds and items")
    expected = between(limits, noncentrality, 0.05) * math.sqrt(total)
    assert found.detectable_limit(confidence) == pytest.approx(expected, rel=1e-6)
    if confidence == 0.5:
        assert found.detectable == pytest.approx(expected, rel=1e-6)
    else:
        assert found.detectable_ci95[int(confidence > 0.5)] == pytest.approx(expected, rel=1e-6)


def noncentrality(df: float) -> float:
    """Return the noncentrality at which Student's t is significant at 5 % with a power of 80 %."""
    limit = stats.t.ppf(0.975, df)
    return optimize.brentq(lambda centre: stats.nct.sf(limit, df, centre) - 0.8, 0, 30)


def mean_squares(values_SI: np.ndarray) -> tuple[float, float]:
    """Return those of items and of the residual, by single sums."""
    seeds, items = values_SI.shape
    item_mean, seed_mean, mean = values_SI.mean(0), values_SI.mean(1), values_SI.mean()
    of_items = seeds * sum((item_mean[i] - mean) ** 2 for i in range(items)) / (items - 1)
    rest = [(values_SI[s, i] - seed_mean[s] - item_mean[i] + mean) ** 2 for s in range(seeds) for i in range(items)]
    return of_items, sum(rest) / (seeds - 1) / (items - 1)


def test_the_parts_of_other_seeds_are_welchs_and_the_items_of_each_task() -> None:
    rng = np.random.default_rng(0)
    seed_a, seed_b = rng.normal(0, 0.4, (4, 1)), rng.normal(0, 0.1, (3, 1))
    pairs = []
    for items in (12, 25, 18):
        common_I = rng.normal(0, 2, items)
        pairs.append(
            tuple(
                seed + common_I + rng.normal(0, 0.8, items) + rng.normal(0, 0.5, (len(seed), items))
                for seed in (seed_a, seed_b)
            )
        )
    found = unpaired(*pairs)
    a_S, b_S = (np.mean([pair[side].mean(1) for pair in pairs], axis=0) for side in (0, 1))
    welch = stats.ttest_ind(a_S, b_S, equal_var=False)
    variance = ((a_S.mean() - b_S.mean()) / welch.statistic) ** 2
    assert found.parts[0] == (pytest.approx(variance), pytest.approx(welch.df))
    for (a_SI, b_SI), (of_items, df) in zip(pairs, found.parts[1:], strict=True):
        delta_I = a_SI.mean(0) - b_SI.mean(0)
        residual = mean_squares(a_SI)[1] / 4 + mean_squares(b_SI)[1] / 3
        assert of_items == pytest.approx((delta_I.var(ddof=1) - residual) / len(delta_I) / 9)
        assert df == len(delta_I) - 1


def test_the_parts_of_common_seeds_are_those_of_the_tasks_mean_and_the_items_of_each_task() -> None:
    rng = np.random.default_rng(7)
    seed_S1 = rng.normal(0, 0.4, (4, 1))
    tasks = [
        seed_S1 + rng.normal(0, 0.3, (4, 1)) + rng.normal(0, 1, items) + rng.normal(0, 0.5, (4, items))
        for items in (12, 25, 18)
    ]
    found = crossed(*tasks)
    seed_means = [sum(float(task[seed].mean()) for task in tasks) / 3 for seed in range(4)]
    assert found.parts[0] == (pytest.approx(stats.sem(seed_means) ** 2), 3)
    for task, part in zip(tasks, found.parts[1:], strict=True):
        of_items, residual = mean_squares(task)
        assert part == (pytest.approx((of_items - residual) / task.size / 9), task.shape[1] - 1)


@pytest.mark.parametrize("variance", [1e-4, 1.0, 400.0])
def test_a_skewed_sample_hides_an_effect_whatever_its_unit(variance: float) -> None:
    limit = float(stats.t.ppf(0.975, 12)) * math.sqrt(variance)
    found = Uncertainty(((variance, 12),), "items", skewness=0.6)
    for times, hidden in ((-1.01, True), (-0.99, False), (0.99, False), (1.01, False), (50.0, False), (-50.0, True)):
        assert found.hidden(times * limit) == hidden


def test_items_that_vary_less_than_by_chance_have_no_part() -> None:
    rng = np.random.default_rng(1)
    rest_SI = rng.normal(0, 1, (3, 20))
    rest_SI -= rest_SI.mean(0)
    values_SI = rest_SI + np.array([[-1.0], [0.0], [1.0]])
    of_one, of_two = crossed(values_SI), unpaired((values_SI, -values_SI[::-1]))
    assert of_one.parts[1] == of_two.parts[1] == (0.0, 19)


@pytest.mark.parametrize(("units", "df"), [(1.2, 1.0), (2.0, 1.0), (2.5, 1.5), (20, 19)])
def test_few_effective_items_have_one_degree_of_freedom(units: float, df: float) -> None:
    values_SI = np.random.default_rng(2).normal(0, 1, (3, 20))
    for found in (
        crossed(values_SI, effective=[units]),
        unpaired((values_SI, -values_SI), effective=[units]),
        random_effects.over_items(values_SI[0], units),
    ):
        assert found.parts[-1][1] == df


STEPS = np.array([-1.0, 0.0, 1.0])
"""Three values of standard deviation 1."""


@pytest.mark.parametrize(("level", "log", "limit"), [(1000.0, False, 1e-3), (-1000.0, False, 1e-3), (5.0, True, 1e-6)])
def test_a_spread_of_seeds_is_rounding_up_to_a_millionth_of_the_score(level: float, log: bool, limit: float) -> None:
    """Of a logarithm: a millionth, as it is the perplexity's."""

    def why(left: float, right: float, apart: float = 0.0, *, paired: bool = True) -> str | None:
        left_S, right_S = level + left * limit * STEPS, level / 2 - right * limit * STEPS
        return without_spread(left_S, right_S + apart * limit * STEPS, [], paired=paired, log=log)

    for paired in (True, False):
        assert why(0.9, 0.9, paired=paired) == random_effects.SAME_SEEDS
        assert why(1.1, 0.0, paired=paired) is None
        assert why(0.0, 1.1, paired=paired) is None
    assert why(50, -50, 0.9) == random_effects.SAME_AMOUNT
    assert why(50, -50, 1.1) is None
    assert why(50, -50, 0.9, paired=False) is None


def test_seeds_of_one_mean_differ_if_their_items_do() -> None:
    """Other answers that cancel in each seed's mean are no rounding: they leave sd / sqrt(I) in it."""
    same_S = np.full(3, 0.5)
    rng = np.random.default_rng(3)

    def items(spread: float) -> np.ndarray:
        rest_SI = rng.normal(0, 1, (3, 40))
        rest_SI -= rest_SI.mean(0)
        rest_SI -= rest_SI.mean(1)[:, None]
        return 0.5 + spread * math.sqrt(40) * rest_SI / math.sqrt(rest_SI.var(axis=0, ddof=1).mean())

    for spread, why in ((0.45e-6, random_effects.SAME_SEEDS), (0.55e-6, None)):
        for pair in ((items(spread), items(0)), (items(0), items(spread))):
            assert without_spread(same_S, same_S, [pair], paired=False, log=False) == why
    moved_SI = items(1e-3)
    for spread, why in ((0.45e-6, random_effects.SAME_AMOUNT), (0.55e-6, None)):
        pair = moved_SI, moved_SI + items(spread) - 0.5
        assert without_spread(same_S, same_S, [pair], paired=True, log=False) == why


def residuals(rng: np.random.Generator, seeds: int, mean_square: float) -> np.ndarray:
    """Return (S, 30) residuals of a mean square, which move no seed's mean and no item's."""
    rest_SI = rng.normal(0, 1, (seeds, 30))
    rest_SI -= rest_SI.mean(0)
    rest_SI -= rest_SI.mean(1)[:, None]
    return rest_SI * math.sqrt(mean_square / mean_squares(rest_SI)[1])


def item_values(rng: np.random.Generator, variance: float) -> np.ndarray:
    value_I = rng.normal(0, 1, 30)
    value_I -= value_I.mean()
    return value_I * math.sqrt(variance / value_I.var(ddof=1))


@pytest.mark.parametrize(("seeds", "paired"), [((3, 3), True), ((3, 3), False), ((4, 3), False), ((3, 5), False)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_items_vary_if_an_f_test_says_so(seeds: Sequence[int], paired: bool, sign: float) -> None:
    """By the F of items over residuals at 5 %, of the differences and of each side."""
    rng = np.random.default_rng(4)
    most = stats.f.ppf(0.95, 29, 29 * (min(seeds) - 1))
    rest = [residuals(rng, count, square) for count, square in zip(seeds, (0.02, 0.03), strict=True)]
    error = 0.02 / seeds[0] + 0.03 / seeds[1]
    if paired:
        rest[1] = rest[1] + rest[0]  # the difference has the residuals of mean square .03
        error = 0.03 / 3
    for times, found in ((0.9999, True), (1.0001, False)):
        half_I = item_values(rng, times * most * error) / 2
        sides = rest[0] + sign + half_I, rest[1] - half_I
        assert alike([sides], np.inf, paired=paired) == found


@pytest.mark.parametrize("side", [0, 1])
def test_items_vary_if_those_of_one_side_do(side: int) -> None:
    rng = np.random.default_rng(5)
    most = stats.f.ppf(0.95, 29, 29 * 2)
    rest = [residuals(rng, 3, 0.02) for _ in range(2)]
    for times, found in ((0.9999, True), (1.0001, False)):
        value_I = item_values(rng, times * most * 0.02 / 3)
        sides = [rest[0] + 1.0, rest[1]]
        sides[side] = sides[side] + value_I
        # Half of it in the other side: the difference varies less than this side does.
        sides[1 - side] = sides[1 - side] + 0.5 * value_I
        assert alike([(sides[0], sides[1])], np.inf, paired=True) == found


def test_a_difference_within_the_residuals_is_not_all_items() -> None:
    rng = np.random.default_rng(6)
    left, right = residuals(rng, 3, 0.02), residuals(rng, 3, 0.03)
    for effect, found in ((0.99, False), (1.01, True)):
        for sign in (1, -1):
            moved = sign * effect * math.sqrt(0.02 + 0.03)
            assert alike([(left + moved, right)], np.inf, paired=False) == found
            moved = sign * effect * math.sqrt(mean_squares(left - right)[1])
            assert alike([(left + moved, right)], np.inf, paired=True) == found


# A line over the logarithm of a size, against numpy and the textbook's interval.

SCORES = {1e6: [0.40, 0.42], 1e7: [0.47], 1e8: [0.51, 0.49, 0.50], 1e9: [0.56]}


def test_it_is_least_squares_over_the_means() -> None:
    line = fit_log_line(SCORES)
    x = np.log10(list(SCORES))
    y = [np.mean(values) for values in SCORES.values()]
    expected = stats.linregress(x, y)
    assert (line.slope, line.intercept) == pytest.approx((expected.slope, expected.intercept))
    half = stats.t.ppf(0.975, 2) * expected.stderr
    assert line.slope_ci95 == pytest.approx((expected.slope - half, expected.slope + half))
    rest = math.sqrt(sum((np.array(y) - line.intercept - line.slope * x) ** 2) / 2)
    at = 5e7
    half = stats.t.ppf(0.975, 2) * rest * math.sqrt(1 / 4 + (math.log10(at) - x.mean()) ** 2 / sum((x - x.mean()) ** 2))
    assert line.band(at) == pytest.approx((line.at(at) - half, line.at(at) + half))


def test_few_sizes_have_no_band_or_no_line() -> None:
    two = fit_log_line({10.0: [0.1], 1000.0: [0.3]})
    assert (two.slope, two.slope_ci95, two.band(100.0), two.at(100.0)) == (
        pytest.approx(0.1),
        None,
        None,
        pytest.approx(0.2),
    )
    assert fit_log_line({10.0: [0.1], 100.0: [], 1000.0: [0.3]}) == two
    assert fit_log_line({10.0: [0.1, 0.2]}) is None
    assert fit_log_line({10.0: [0.1, 0.2], 100.0: []}) is None
