"""Ratings of models from their duels, against numbers by hand and by a maximum of the likelihood."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize

from emobench.kinds.instruct.judged import Judgement
from emobench.kinds.instruct.judging import round_robin as module

pytest.importorskip("evalica", reason="needs the package evalica")


def round_robin(preferences: dict[tuple[int, int], list[float]], units: list[str] | None = None) -> Any:
    """Return duels and ratings of a judge without probabilities."""
    outcomes = {pair: [int(np.sign(value - 0.5)) for value in values] for pair, values in preferences.items()}
    count = len(next(iter(preferences.values())))
    return module.round_robin(preferences, outcomes, units or [str(i) for i in range(count)])


def plus_four(values: list[float]) -> tuple[float, float]:
    """Return the t interval of values to which two wins and two losses were added (Agresti and Coull, 1998)."""
    more = [*values, 1.0, 1.0, 0.0, 0.0]
    low, high = stats.t.interval(0.95, len(more) - 1, np.mean(more), stats.sem(more))
    return max(low, 0.0), min(high, 1.0)


def test_two_models_have_the_odds_of_their_duel() -> None:
    ((duel,), ratings) = round_robin({(0, 1): [1.0] * 10 + [0.0]})
    assert (duel.wins, duel.ties, duel.losses, duel.win_rate) == (10, 0, 1, pytest.approx(10 / 11))
    assert duel.ci95 == pytest.approx(plus_four([1.0] * 10 + [0.0]))
    assert [one.rating for one in ratings] == [pytest.approx(1200, abs=1e-3), pytest.approx(800, abs=1e-3)]
    # The logit with a quarter of a win and of a loss, and Student's t with n - 1/2 degrees of freedom.
    wins, losses = 10.25, 1.25
    error = np.sqrt((1 / wins + 1 / losses) * 11.5 / 10.5)
    bounds = np.log10(wins / losses) + np.array([-1, 1]) * stats.t.ppf(0.975, 10.5) * error / np.log(10)
    assert ratings[0].ci95 == pytest.approx(tuple(1000 + 200 * bounds), abs=0.01)
    assert ratings[1].ci95 == pytest.approx(tuple(1000 - 200 * bounds[::-1]), abs=0.01)


def test_ratings_are_the_maximum_of_the_likelihood() -> None:
    generator = np.random.default_rng(3)
    preferences = {}
    for pair in combinations(range(4), 2):
        preferences[pair] = generator.choice([0.0, 0.5, 1.0], size=60, p=[0.3, 0.2, 0.5]).tolist()

    def loss(strength: np.ndarray) -> float:
        total = 0.0
        for (a, b), values in preferences.items():
            lead = strength[a] - strength[b]
            total += sum(p * np.logaddexp(0, -lead) + (1 - p) * np.logaddexp(0, lead) for p in values)
        return total

    best = minimize(loss, np.zeros(4), tol=1e-12).x
    expected = 1000 + 400 * (best - best.mean()) / np.log(10)
    _, ratings = round_robin(preferences)
    assert [one.rating for one in ratings] == [pytest.approx(value, abs=0.05) for value in expected]
    assert all(one.ci95[0] < one.rating < one.ci95[1] for one in ratings)


@pytest.mark.parametrize(
    ("preferences", "rating"),
    [
        ({(0, 1): [1.0, 1.0], (0, 2): [1.0, 1.0], (1, 2): [1.0, 0.0]}, None),  # one always wins
        ({(0, 1): [0.0, 0.0], (0, 2): [0.0, 0.0], (1, 2): [0.0, 1.0]}, None),  # one always loses
        ({(0, 1): [1.0, 1.0], (0, 2): [0.0, 0.0], (1, 2): [1.0, 1.0]}, pytest.approx(1000)),  # a circle
        ({(0, 1): [0.5, 0.5, 0.5]}, pytest.approx(1000)),
    ],
)
def test_ratings_are_finite_where_each_beats_each_other_through_some_chain(preferences: Any, rating: Any) -> None:
    duels, ratings = round_robin(preferences)
    assert {one.ci95 is None for one in ratings} == {rating is None}
    assert all(one.rating == rating for one in ratings)
    if len(duels) == 1:
        assert (duels[0].wins, duels[0].ties, duels[0].win_rate) == (0, 3, 0.5)
        assert duels[0].ci95 == pytest.approx(plus_four([0.5] * 3))


@pytest.mark.parametrize("count", [10, 20, 60, 300])
@pytest.mark.parametrize(
    "shares", [(1, 0, 0), (0.95, 0, 0.05), (0.8, 0, 0.2), (0.5, 0, 0.5), (0, 1, 0), (0.9, 0.1, 0), (0.05, 0.9, 0.05)]
)
def test_intervals_of_win_rates_cover_the_truth(count: int, shares: tuple[float, float, float]) -> None:
    draws = np.random.default_rng(5).multinomial(count, shares, size=2000)
    counts, times = np.unique(draws, axis=0, return_counts=True)
    covered = 0
    for (wins, ties, losses), often in zip(counts.tolist(), times.tolist(), strict=True):
        values_CN = np.array([[1.0] * wins + [0.5] * ties + [0.0] * losses])
        weights_U = np.ones(count)
        middle_C, covariance_CC = module._moments(values_CN, weights_U, module.OF_RATE)
        half = module._factor(weights_U, module.OF_RATE) * np.sqrt(covariance_CC[0, 0])
        assert half > 0
        covered += often * (abs(middle_C[0] - shares[0] - shares[1] / 2) <= half)
    assert covered / 2000 >= 0.93


@pytest.mark.parametrize(("count", "odds"), [(20, 1.0), (20, 2.5), (60, 2.9), (100, 0.5)])
def test_intervals_of_ratings_cover_the_truth_or_there_is_none(count: int, odds: float) -> None:
    truth = 1000 + 200 * odds / np.log(10)
    covered = 0.0
    for wins in range(count + 1):
        weight = stats.binom.pmf(wins, count, 1 / (1 + np.exp(-odds)))
        if weight >= 1e-5:
            _, ratings = round_robin({(0, 1): [1.0] * wins + [0.0] * (count - wins)})
            interval = ratings[0].ci95
            covered += weight * (interval is None or interval[0] <= truth <= interval[1])
    assert covered >= 0.93


def test_equal_instructions_are_one_unit() -> None:
    values = np.random.default_rng(1).choice([0.0, 0.5, 1.0], size=12).tolist()
    units = [str(i) for i in range(12)]
    once, copied = round_robin({(0, 1): values}, units), round_robin({(0, 1): values * 32}, units * 32)
    assert copied[0][0].ci95 == pytest.approx(once[0][0].ci95)
    assert copied[1][0].ci95 == pytest.approx(once[1][0].ci95)
    assert copied[0][0].wins == 32 * once[0][0].wins


@pytest.mark.parametrize(
    ("sides", "outcome", "graded"),
    [
        ((1.0, 1.0), 1, 1.0), ((0.0, 0.0), -1, 0.0), ((1.0, 0.0), 0, 0.5), ((1.0, 0.5), 0, 0.75),
        ((0.95, 0.1), 0, 0.525), ((0.95, 0.6), 1, 0.775), ((0.4, 0.1), -1, 0.25), ((0.5, 0.5), 0, 0.5),
    ],
)  # fmt: skip
def test_a_win_is_preferred_in_both_orders(sides: tuple[float, float], outcome: int, graded: float) -> None:
    judged = Judgement("a", *sides, preference=graded)
    assert judged.outcome == outcome
    ((duel,), _) = module.round_robin({(0, 1): [graded] * 3}, {(0, 1): [judged.outcome] * 3}, ["a", "b", "c"])
    assert (duel.wins, duel.ties, duel.losses) == tuple(3 * (outcome == one) for one in (1, 0, -1))
    assert duel.win_rate == pytest.approx(graded)
    assert Judgement("a", 1.0, None, None).outcome is None
