"""Distributions, against scipy.special."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special, stats

from emobench.leaderboard.stats import distributions

FREEDOMS = (1, 1.3, 2, 3, 9.9, 57.3, 1000, 123456.7)
SHAPES = (0.5, 1, 2, 8, 17, 100, 999, 5000, 1e5)


@pytest.mark.parametrize("df", FREEDOMS)
def test_students_t(df: float) -> None:
    for t in (-300, -40, -10, -3, -1, -0.1, -1e-3, 0, 0.5, 3):
        expected = float(special.stdtr(df, t))
        if expected > 1e-280:
            assert distributions.t_below(df, t) == pytest.approx(expected, rel=1e-10)
    for probability in (5e-101, 1e-60, 1e-12, 1e-3, 0.025, 0.3, 0.4999, 0.5, 0.8, 0.975):
        quantile = distributions.t_quantile(df, probability)
        assert float(special.stdtr(df, quantile)) == pytest.approx(probability, rel=1e-10)


@pytest.mark.parametrize("df", FREEDOMS)
def test_quantiles_of_chi_square_and_noncentralities(df: float) -> None:
    for probability in (0.001, 0.025, 0.05, 0.5, 0.975, 0.999):
        expected = float(special.chdtri(df, 1 - probability))
        assert distributions.chi2_quantile(df, probability) == pytest.approx(expected, rel=1e-10)
    t = distributions.t_quantile(df, 0.975)
    needed = distributions.noncentrality(df, t, 0.2)
    assert float(stats.nct.cdf(t, df, needed)) == pytest.approx(0.2, abs=1e-7)
    quantile = distributions.noncentral_t_quantile(df, 2.1, 0.8)
    assert float(stats.nct.cdf(quantile, df, 2.1)) == pytest.approx(0.8, abs=1e-7)


@pytest.mark.parametrize("a", SHAPES)
def test_beta(a: float) -> None:
    small_N = np.geomspace(1e-9, 0.5, 100)
    x_N = np.concatenate([[0, 1], small_N, 1 - small_N])
    probability_N = np.linspace(0.001, 0.999, 50)
    for b in SHAPES:
        expected_N = special.betainc(a, b, x_N)
        below_N = distributions.beta_below(a, b, x_N)
        assert np.max(below_N[expected_N == 0]) < 1e-278  # scipy gives 0 for 1.3342e-279 (a = 1e5, b = 17, x = .99286)
        np.testing.assert_allclose(below_N[expected_N > 0], expected_N[expected_N > 0], rtol=1e-10, atol=1e-280)
        expected_N = special.betaincinv(a, b, probability_N)
        np.testing.assert_allclose(distributions.beta_quantiles(a, b, probability_N), expected_N, atol=1e-10)
    assert distributions.beta_below(0, 1, np.array([0.0, 0.5])).tolist() == [1, 1]
    assert distributions.beta_quantiles(1, 0, np.array([0.0, 0.5])).tolist() == [1, 1]


@pytest.mark.parametrize("flips", [1, 5, 101, 20000])
def test_coins(flips: int) -> None:
    for heads in (-1, 0, 1, flips // 3, flips // 2, flips - 1, flips):
        expected = float(stats.binom.cdf(heads, flips, 0.5))
        assert distributions.coin_at_most(heads, flips) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("df", [1, 1.2, 2, 3, 5])
@pytest.mark.parametrize("level", [0.01, 1e-3, 1e-4])
def test_noncentral_t_of_many_tests_and_few_seeds(df: float, level: float) -> None:
    t = -distributions.t_quantile(df, level / 2)
    needed = float(special.nctdtrinc(df, 0.2, t))
    assert distributions.noncentrality(df, t, 0.2) == pytest.approx(needed, rel=0.005)
    expected = float(special.nctdtrit(df, needed, 0.8))
    assert distributions.noncentral_t_quantile(df, needed, 0.8) == pytest.approx(expected, rel=0.005)
