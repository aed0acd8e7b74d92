"""The expected best of n trials against the best of every subset, and the noise of choosing one of two."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

import pytest

from emobench.leaderboard.entry import Trial, Tuning
from emobench.leaderboard.stats.best_of import HALF_WIDTH, choice_noise, expected_best
from emobench.leaderboard.stats.difference import Difference, with_fixed_noise
from emobench.leaderboard.stats.random_effects import Uncertainty

VALUES = [0.31, 0.12, 0.55, 0.55, -2.0, 0.4]


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_it_is_the_mean_over_all_subsets(higher_is_better: bool) -> None:
    best_of = max if higher_is_better else min
    curve = expected_best(VALUES, higher_is_better=higher_is_better)
    assert len(curve) == len(VALUES)
    for trials, mean in enumerate(curve, 1):
        best = [best_of(subset) for subset in itertools.combinations(VALUES, trials)]
        assert mean == pytest.approx(statistics.fmean(best), abs=1e-12)


def test_its_ends_are_the_mean_and_the_best() -> None:
    curve = expected_best(VALUES, higher_is_better=True)
    assert curve[0] == pytest.approx(statistics.fmean(VALUES))
    assert curve[-1] == pytest.approx(0.55)
    assert expected_best([7.0], higher_is_better=False) == [7.0]


def test_a_trial_without_a_result_is_the_worst_of_any_subset() -> None:
    """Leaving it out would flatter an objective that diverges."""
    values = [*VALUES, None, None]
    curve = expected_best(values, higher_is_better=True)
    assert curve[:2] == [None, None]
    for trials in range(3, len(values) + 1):
        subsets = itertools.combinations([-math.inf if value is None else value for value in values], trials)
        assert curve[trials - 1] == pytest.approx(statistics.fmean(map(max, subsets)), abs=1e-12)


def search(values: Sequence[float | None], error: float = 0.0, seeds: int = 1) -> Tuning:
    best = max([value for value in values if value is not None])
    trials = []
    for place, value in enumerate(values):
        trials.append(Trial(settings={"recipe.epochs": place}, value=value, half_width=HALF_WIDTH * error))
    return Tuning(
        asked={},
        space={"recipe.epochs": "0..9"},
        sampler="grid",
        seeds=tuple(range(seeds)),
        metric="mauve",
        unit="nats",
        higher_is_better=True,
        validation={},
        trials=tuple(trials),
        chosen=list(values).index(best),
    )


@pytest.mark.parametrize(("error", "of_seeds", "seeds"), [(0.1, 0.0, 1), (0.06, 0.0064, 1), (0.1, 0.03, 3)])
def test_the_noise_of_a_choice_of_two_is_that_of_a_coin(error: float, of_seeds: float, seeds: int) -> None:
    """The better of two trials wins with the probability Phi(gap / (sqrt(2) error)); the error is 0.1 each time."""
    wins = statistics.NormalDist().cdf(0.1 / (math.sqrt(2) * 0.1))
    tuning = search([0.5, None, 0.4], error, seeds)
    variance, freedom = choice_noise([tuning, tuning], of_seeds, log=False)
    assert variance == pytest.approx(2 * wins * (1 - wins) * 0.1**2, rel=0.03)
    assert freedom == 2


def test_a_choice_without_noise_or_alternatives_adds_nothing() -> None:
    for tuning in (search([0.5, 0.4]), search([0.5, 0.5], 0.1), search([0.5], 0.1), search([0.9, 0.1], 0.01)):
        assert choice_noise([tuning], 0.0, log=False)[0] == pytest.approx(0, abs=1e-20)


def test_the_noise_of_perplexities_is_of_their_logarithms() -> None:
    plain, _ = choice_noise([search([math.log(20.0), math.log(22.0)], 0.1)], 0.0, log=False)
    assert choice_noise([search([0.5], 0.1)], 0.0, log=False) == (0, 0)
    logarithms, _ = choice_noise([search([20.0, 22.0], 2.1)], 0.0, log=True)
    assert logarithms == pytest.approx(plain, rel=0.05)


def test_a_little_noise_of_many_degrees_of_freedom_makes_nothing_surer() -> None:
    noise = Uncertainty(((0.0008, 2), (0.00001, 199)), "seeds and items")
    effect = 0.28
    before = Difference(
        effect=effect, log_scale=False, ci95=noise.interval(effect), p=noise.p_value(effect), noise=noise
    )
    after = with_fixed_noise(before, (0.00004, 100))
    assert before.ci95
    assert after.ci95
    assert after.ci95[0] <= before.ci95[0] < before.ci95[1] <= after.ci95[1]
    assert after.p >= before.p
    assert after.noise.p_value(effect) < before.p  # as it would be without this care
