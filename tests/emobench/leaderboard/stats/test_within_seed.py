"""Tests within a seed agree with statsmodels, scipy and enumeration."""

from __future__ import annotations

import numpy as np
import pytest
from made_scores import within_seed
from scipy import stats
from statsmodels.stats import contingency_tables

from emobench.leaderboard.stats.classical import MCNEMAR_MID_P, mcnemar_mid_p
from emobench.leaderboard.stats.difference import PAIRED_T
from emobench.leaderboard.stats.series import Series


def series(values_I: np.ndarray, weight_I: np.ndarray | None = None, *, log_scale: bool = False) -> Series:
    weights = np.ones(len(values_I)) if weight_I is None else weight_I
    examples = {str(i): (float(v), float(w)) for i, (v, w) in enumerate(zip(values_I, weights, strict=True))}
    mean = float(np.average(values_I, weights=weights))
    value = float(np.exp(mean)) if log_scale else mean
    return Series(values={0: value}, examples={0: examples}, log_scale=log_scale)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (5, 5), (3, 11), (40, 22), (300, 260)])
def test_mcnemar_is_the_exact_test_less_half_of_what_was_observed(only_a: int, only_b: int) -> None:
    exact = contingency_tables.mcnemar([[10, only_a], [only_b, 10]], exact=True).pvalue
    observed = stats.binom.pmf(only_a, only_a + only_b, 0.5)
    want = 1.0 if only_a == only_b else exact - observed
    assert mcnemar_mid_p(only_a, only_b) == pytest.approx(want)
    assert mcnemar_mid_p(only_a, only_b) == mcnemar_mid_p(only_b, only_a)


def test_an_accuracy_is_tested_by_mcnemar() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 200).astype(float), rng.integers(0, 2, 200).astype(float)
    found = within_seed(series(a), series(b), 0)
    assert found.test == MCNEMAR_MID_P
    assert found.p == mcnemar_mid_p(int((a > b).sum()), int((b > a).sum()))
    assert found.effect == pytest.approx(a.mean() - b.mean())
    assert found.ci95 == pytest.approx(tuple(stats.ttest_rel(a, b).confidence_interval()), abs=0.005)


def corrected_p(delta_I: np.ndarray, freedom: float) -> float:
    """Return the largest p of Hall's corrected t over a grid of skewnesses up to its limit."""
    items, error = len(delta_I), stats.sem(delta_I)
    t, skewness = delta_I.mean() / error, stats.kstat(delta_I, 3) / items**2 / error**3
    r = np.linspace(0, (1.4 + 150 / items**2) * skewness, 20_001)
    corrected = t + r * t**2 / 3 + r**2 * t**3 / 27 + r / 6
    smallest = 0.0 if corrected.min() < 0 < corrected.max() else float(np.abs(corrected).min())
    return float(2 * stats.t.sf(smallest, freedom))


def pseudo(values_I: np.ndarray, weight_I: np.ndarray) -> np.ndarray:
    """Return the jackknife's pseudo-values of a weighted mean, moved to have it as their mean."""
    items, mean = len(values_I), np.average(values_I, weights=weight_I)
    others = [np.average(np.delete(values_I, i), weights=np.delete(weight_I, i)) for i in range(items)]
    pseudo_I = items * mean - (items - 1) * np.array(others)
    return pseudo_I - pseudo_I.mean() + mean


@pytest.mark.parametrize("log_scale", [False, True])
@pytest.mark.parametrize("items", [10, 39, 40, 150])
def test_other_scores_have_the_t_test_of_result_files(items: int, log_scale: bool) -> None:
    rng = np.random.default_rng([items, log_scale])
    weight_I = rng.integers(10, 60, items).astype(float) if log_scale else np.ones(items)
    a_I = rng.normal(4, 0.3, items)
    b_I = a_I + rng.gamma(4, 0.1, items) - 0.33
    found = within_seed(series(a_I, weight_I, log_scale=log_scale), series(b_I, weight_I, log_scale=log_scale), 0)
    delta_I = pseudo(a_I, weight_I) - pseudo(b_I, weight_I)
    freedom = weight_I.sum() ** 2 / np.square(weight_I).sum() - 1
    assert (found.test, found.items) == (PAIRED_T, items)
    assert found.effect == pytest.approx(np.average(a_I - b_I, weights=weight_I))
    assert found.p == pytest.approx(corrected_p(delta_I, freedom), rel=1e-3)
    assert found.ci95 is not None
    assert [corrected_p(delta_I - end, freedom) for end in found.ci95] == pytest.approx([0.05, 0.05], rel=1e-2)


def test_a_row_without_seeds_stands_beside_any_seed() -> None:
    rng = np.random.default_rng(4)
    a, plain = series(rng.normal(0, 1, 50)), series(rng.normal(0, 1, 50))
    without = Series(**{**vars(plain), "values": {None: plain.values[0]}, "examples": {None: plain.examples[0]}})
    assert within_seed(a, without, 0) == within_seed(a, plain, 0)


def test_the_interval_beside_a_mid_p_is_of_mid_p() -> None:
    """Five answers to none: mid-p is .031, and the exact p .0625."""
    left = np.array([1.0] * 5 + [0.0] * 7)
    found = within_seed(series(left), series(np.zeros(12)), 0)
    assert found.p == pytest.approx(1 / 32)
    assert found.ci95[0] > 0
