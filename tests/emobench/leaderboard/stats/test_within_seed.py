"""Tests within a seed agree with statsmodels, scipy and enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize, stats
from statsmodels.stats import contingency_tables

from emobench.leaderboard.stats.paired_tests import bootstrap, mcnemar, permutation
from emobench.leaderboard.stats.paired_tests.mcnemar import mcnemar_mid_p
from emobench.leaderboard.stats.paired_tests.permutation import permutation_p
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.within_seed import within_seed


def series(values_I: np.ndarray, weight_I: np.ndarray | None = None, *, log_scale: bool = False) -> Series:
    weights = np.ones(len(values_I)) if weight_I is None else weight_I
    examples = {str(i): (float(v), float(w)) for i, (v, w) in enumerate(zip(values_I, weights, strict=True))}
    mean = float(np.average(values_I, weights=weights))
    value = float(np.exp(mean)) if log_scale else mean
    return Series(values={0: value}, examples={0: examples}, higher_is_better=True, log_scale=log_scale)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (5, 5), (3, 11), (40, 22), (300, 260)])
def test_mcnemar_is_the_exact_test_less_half_of_what_was_observed(only_a: int, only_b: int) -> None:
    exact = contingency_tables.mcnemar([[10, only_a], [only_b, 10]], exact=True).pvalue
    observed = stats.binom.pmf(only_a, only_a + only_b, 0.5)
    want = 1.0 if only_a == only_b else exact - observed
    assert mcnemar_mid_p(only_a, only_b) == pytest.approx(want)
    assert mcnemar_mid_p(only_a, only_b) == mcnemar_mid_p(only_b, only_a)


def test_the_permutation_test_is_that_of_all_signs() -> None:
    delta_I = np.array([0.3, -0.1, 0.8, 0.4, 0.25, -0.05, 0.6, 0.1, 0.9, -0.2])
    sums = [
        abs(sum(s * d for s, d in zip(signs, delta_I, strict=True))) for signs in itertools.product((1, -1), repeat=10)
    ]
    exact = np.mean([total >= abs(delta_I.sum()) - 1e-12 for total in sums])
    assert permutation_p(delta_I) == pytest.approx(exact, abs=0.004)  # 4 standard errors of 9,999 draws
    scipy = stats.permutation_test((delta_I,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert exact == pytest.approx(scipy.pvalue)


def test_an_accuracy_is_tested_by_mcnemar() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 2, 200).astype(float), rng.integers(0, 2, 200).astype(float)
    found = within_seed(series(a), series(b), 0)
    assert found is not None
    assert found.test == mcnemar.NAME
    assert found.p == mcnemar_mid_p(int((a > b).sum()), int((b > a).sum()))
    assert found.effect == pytest.approx(a.mean() - b.mean())
    assert found.ci95 == pytest.approx(tuple(stats.ttest_rel(a, b).confidence_interval()), abs=0.005)


def test_a_score_of_texts_is_tested_by_permutation() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.5, 0.1, 150), rng.normal(0.48, 0.1, 150)
    found = within_seed(series(a), series(b), 0)
    assert found is not None
    assert found.test == permutation.NAME
    want = stats.permutation_test((a - b,), np.mean, permutation_type="samples", vectorized=True, n_resamples=20_000)
    assert found.p == pytest.approx(want.pvalue, abs=0.02)
    assert found.ci95 == pytest.approx(tuple(stats.ttest_rel(a, b).confidence_interval()), abs=0.002)


def test_a_perplexity_is_tested_by_the_bootstrap_over_texts() -> None:
    """The percentile interval against the delta method's, which knows nothing of resampling."""
    rng = np.random.default_rng(2)
    weights = rng.integers(10, 60, 800).astype(float)
    a = rng.normal(4, 0.5, 800)
    b = a + rng.normal(0.03, 0.3, 800)
    found = within_seed(series(a, weights, log_scale=True), series(b, weights, log_scale=True), 0)
    assert found is not None
    effect = float(np.average(a - b, weights=weights))
    error = np.sqrt(np.square(weights / weights.sum() * (a - b - effect)).sum())
    assert (found.test, found.effect) == (bootstrap.NAME, pytest.approx(effect))
    assert found.ci95 == pytest.approx((effect - 1.96 * error, effect + 1.96 * error), abs=0.1 * error)
    assert found.p == pytest.approx(2 * stats.norm.sf(abs(effect) / error), abs=0.01)


def test_few_texts_are_tested_by_permutation_and_texts_without_weight_do_not_count() -> None:
    rng = np.random.default_rng(5)
    a, b, weights = rng.normal(4, 0.5, 60), rng.normal(4.1, 0.5, 60), rng.integers(1, 9, 60).astype(float)
    for count, test in ((39, permutation.NAME), (40, bootstrap.NAME)):
        kept = np.where(np.arange(60) < count, weights, 0.0)
        found = within_seed(series(a, kept, log_scale=True), series(b, kept, log_scale=True), 0)
        assert found is not None
        assert (found.test, found.items) == (test, count)
        assert found.effect == pytest.approx(np.average(a - b, weights=kept))


def test_perplexities_of_other_tokens_are_not_tested() -> None:
    rng = np.random.default_rng(6)
    a, b = rng.normal(4, 0.5, 60), rng.normal(4, 0.5, 60)
    assert (
        within_seed(series(a, np.full(60, 20.0), log_scale=True), series(b, np.full(60, 28.0), log_scale=True), 0)
        is None
    )


def test_a_constant_weight_changes_no_answer() -> None:
    rng = np.random.default_rng(7)
    a, b = rng.integers(0, 2, 200).astype(float), rng.integers(0, 2, 200).astype(float)
    light = [within_seed(series(a, np.full(200, w)), series(b, np.full(200, w)), 0) for w in (1.0, 0.1)]
    assert light[0] is not None
    assert light[1] is not None
    assert (light[0].test, light[0].p) == (light[1].test, light[1].p)


def test_the_same_data_give_the_same_p() -> None:
    rng = np.random.default_rng(3)
    a, b = series(rng.normal(0, 1, 50)), series(rng.normal(0, 1, 50))
    assert within_seed(a, b, 0) == within_seed(a, b, 0)


def test_a_row_without_seeds_stands_beside_any_seed() -> None:
    rng = np.random.default_rng(4)
    a, plain = series(rng.normal(0, 1, 50)), series(rng.normal(0, 1, 50))
    without = Series(**{**vars(plain), "values": {None: plain.values[0]}, "examples": {None: plain.examples[0]}})  # type: ignore[index]
    assert within_seed(a, without, 0) == within_seed(a, plain, 0)


def test_other_items_or_none_say_nothing() -> None:
    a, b = series(np.arange(5.0)), series(np.arange(6.0))
    assert within_seed(a, b, 0) is None
    assert within_seed(a, replace(a, examples=None), 0) is None


def test_identical_models_do_not_differ() -> None:
    for values in (np.array([1.0, 0.0, 1.0]), np.array([0.2, 0.4, 0.9])):
        found = within_seed(series(values), series(values), 0)
        assert found is not None
        assert (found.effect, found.p) == (0.0, 1.0)
        low, high = found.ci95 or (0.0, 0.0)  # where no noise is seen, none is claimed
        assert low <= 0 <= high


def test_items_of_unlike_weights_are_worth_fewer() -> None:
    rng = np.random.default_rng(3)
    weight_I = rng.lognormal(0, 1.5, 40)
    a, b = (rng.normal(3, 0.3, 40) for _ in range(2))
    found = within_seed(series(a, weight_I), series(b, weight_I), 0)
    assert found is not None
    assert found.ci95 is not None
    signs_BI = rng.choice([-1.0, 1.0], (20_000, 40))
    for limit in (0.0, *found.ci95):
        moved_I = weight_I * (a - b - limit)
        share = np.mean(np.abs(signs_BI @ moved_I) >= abs(moved_I.sum()))
        assert share == pytest.approx(found.p if limit == 0 else 0.05, abs=0.01)
    alike = within_seed(series(a), series(b), 0)
    assert alike is not None
    assert alike.ci95 is not None
    assert np.ptp(found.ci95) > 2 * np.ptp(alike.ci95)


def test_perplexities_are_not_tested_if_one_text_has_another_number_of_tokens() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(4, 0.5, 60), rng.normal(4, 0.5, 60)
    weights = np.full(60, 20.0), np.where(np.arange(60) == 3, 21.0, 20.0)
    assert within_seed(series(a, weights[0], log_scale=True), series(b, weights[1], log_scale=True), 0) is None
    assert within_seed(series(a, weights[0]), series(b, weights[1]), 0) is not None


def test_a_perplexity_is_not_compared_with_another_score() -> None:
    rng = np.random.default_rng(9)
    a, b = rng.normal(4, 0.5, 60), rng.normal(4, 0.5, 60)
    assert within_seed(series(a, log_scale=True), series(b), 0) is None
    assert within_seed(series(a), series(b, log_scale=True), 0) is None


def test_partial_answers_of_one_side_are_tested_by_permutation() -> None:
    right = np.array([1.0, 0.0] * 20)
    partial = np.where(np.arange(40) == 7, 0.5, right[::-1])
    for sides in ((right, partial), (partial, right)):
        found = within_seed(series(sides[0]), series(sides[1]), 0)
        assert found is not None
        assert found.test == permutation.NAME


def test_the_interval_beside_a_mid_p_is_of_mid_p() -> None:
    """Five answers to none: mid-p is .031, and the exact p .0625."""
    left = np.array([1.0] * 5 + [0.0] * 7)
    found = within_seed(series(left), series(np.zeros(12)), 0)
    assert found is not None
    assert found.ci95 is not None
    assert found.p == pytest.approx(1 / 32)
    assert found.ci95[0] > 0


@pytest.mark.parametrize("heavy", [0, 1])
def test_what_is_detectable_has_the_freedom_of_the_side_with_fewer_equal_items(heavy: int) -> None:
    rng = np.random.default_rng(10)
    values = rng.normal(0, 1, (2, 40))
    weights = [np.where(np.arange(40) == 7, 20.0, 1.0) if side == heavy else np.ones(40) for side in (0, 1)]
    found = within_seed(*(series(v, w) for v, w in zip(values, weights, strict=True)), 0)
    assert found is not None
    without = []
    for place in range(40):
        kept = np.arange(40) != place
        left, right = (np.average(v[kept], weights=w[kept]) for v, w in zip(values, weights, strict=True))
        without.append(left - right)
    variance = 39 / 40 * float(np.square(np.array(without) - np.mean(without)).sum())
    freedom = weights[heavy].sum() ** 2 / np.square(weights[heavy]).sum() - 1
    critical = stats.t.ppf(0.975, freedom)
    needed = optimize.brentq(lambda centre: stats.nct.sf(critical, freedom, centre) - 0.8, 0, 20)
    expected = needed * np.sqrt(variance * freedom / stats.chi2.ppf(0.5, freedom))
    assert found.detectable == pytest.approx(expected, rel=1e-6)
