"""The variance of a mean over seeds and items, against scipy, statsmodels and what it estimates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm
from statsmodels.stats.power import TTestPower

from emobench.leaderboard.stats.random_effects import Uncertainty, crossed, over_seeds, unpaired


def sample(rng: np.random.Generator, seeds: int, items: int, seed_sd: float, item_sd: float) -> np.ndarray:
    """Return (S, I) values around 0 with residuals of spread 1; `item_sd` may be an array shared by callers."""
    seed_S1 = rng.normal(0, seed_sd, (seeds, 1))
    return seed_S1 + rng.normal(0, item_sd, items) + rng.normal(0, 1, (seeds, items))


def test_the_residual_is_counted_once() -> None:
    """The estimated variance of the mean is unbiased for v_seed / S + v_item / I + v_residual / (S I)."""
    rng = np.random.default_rng(1)
    want = 0.3**2 / 3 + 0.8**2 / 50 + 1 / 150
    found = [crossed(sample(rng, 3, 50, 0.3, 0.8)) for _ in range(2000)]
    assert np.mean([u.standard_error**2 for u in found if u]) == pytest.approx(want, rel=0.05)


@pytest.mark.parametrize("df", [1, 2, 30])
def test_the_p_value_of_one_part_is_students(df: int) -> None:
    found = Uncertainty(((4.0, df),), "seeds")
    for effect in (0.0, 0.5, 3.0, 40.0):
        assert found.p_value(effect) == pytest.approx(2 * stats.t.sf(effect / 2, df), rel=1e-6)
    assert found.critical() == pytest.approx(stats.t.ppf(0.975, df))


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


def test_other_seeds_on_the_same_items() -> None:
    """Unbiased: v_seed (1/3 + 1/4) + v_residual (1/3 + 1/4) / I + the variance of what items make of objectives / I."""
    rng = np.random.default_rng(13)
    want = 0.3**2 * (1 / 3 + 1 / 4) + 1 / 50 * (1 / 3 + 1 / 4) + 2 * 0.5**2 / 50
    found = [unpaired((sample(rng, 3, 50, 0.3, 0.5), sample(rng, 4, 50, 0.3, 0.5))) for _ in range(3000)]
    assert np.mean([u.standard_error**2 for u in found if u]) == pytest.approx(want, rel=0.05)


def test_the_mean_over_tasks_counts_the_items_of_each_task() -> None:
    """Unbiased: v_seed / S + the sum over K tasks of (v_item / I + v_residual / (S I)) / K^2."""
    rng = np.random.default_rng(16)
    want = 0.2**2 / 3 + ((0.8**2 / 50 + 1 / 150) + (0.5**2 / 20 + 1 / 60)) / 4
    found = []
    for _ in range(3000):
        seed_S1 = rng.normal(0, 0.2, (3, 1))  # a seed moves both tasks
        found.append(crossed(seed_S1 + sample(rng, 3, 50, 0, 0.8), seed_S1 + sample(rng, 3, 20, 0, 0.5)))
    assert np.mean([u.standard_error**2 for u in found if u]) == pytest.approx(want, rel=0.05)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_what_is_called_detectable_has_its_power_in_four_of_five_experiments(seeds: int) -> None:
    """Against the exact power of the paired t test (statsmodels) at the true spread, 1."""
    rng = np.random.default_rng(seeds)
    least = TTestPower().solve_power(nobs=seeds, alpha=0.05, power=0.8)
    assert TTestPower().power(least, seeds, 0.05) == pytest.approx(0.8)
    found = [over_seeds(rng.normal(0, 1, seeds)) for _ in range(2000)]
    assert np.mean([u.detectable >= least for u in found if u]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(("seed_sd", "items"), [(0.3, 20), (0.1, 200), (0.03, 200)])
def test_it_is_so_with_items_too(seed_sd: float, items: int) -> None:
    """Three seeds whose share of the variance of the mean is .81, .44 and .07, and the least effect of power .8."""
    rng = np.random.default_rng([items, int(1000 * seed_sd)])
    found = [u for _ in range(1200) if (u := crossed(sample(rng, 3, items, seed_sd, 0.5)))]
    means = rng.normal(0, np.sqrt(seed_sd**2 / 3 + 0.5**2 / items + 1 / (3 * items)), len(found))
    errors, limits = (np.array(of) for of in zip(*((u.standard_error, u.critical()) for u in found), strict=True))
    effects = np.linspace(0, 8 * errors.mean(), 400)
    power = np.array([np.mean(np.abs(means + effect) / errors > limits) for effect in effects])
    least = effects[np.argmax(power >= 0.8)]
    assert np.mean([u.detectable >= least for u in found]) >= 0.77


def test_the_parts_are_those_of_a_two_way_analysis_of_variance() -> None:
    """Against statsmodels' table of seeds and items, without replication."""
    values_SI = sample(np.random.default_rng(18), 4, 12, 0.5, 0.7)
    frame = pd.DataFrame([(s, i, v) for s, row in enumerate(values_SI) for i, v in enumerate(row)], columns=list("siv"))
    table = anova_lm(ols("v ~ C(s) + C(i)", frame).fit())
    seeds, items, residual = table["mean_sq"]
    found = crossed(values_SI)
    assert found is not None
    assert found.parts == (
        (pytest.approx(seeds / 48), 3),
        (pytest.approx(max(items - residual, 0) / 48), 11),
    )
