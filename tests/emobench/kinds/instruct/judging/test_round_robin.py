"""Ratings of models from their duels, against numbers by hand and by a maximum of the likelihood."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from emobench.kinds.instruct.judging.round_robin import round_robin

pytest.importorskip("evalica", reason="needs the package evalica")


def test_two_models_have_the_odds_of_their_duel() -> None:
    duels, ratings = round_robin({(0, 1): [1.0] * 10 + [0.0]})
    (duel,) = duels
    assert (duel.wins, duel.ties, duel.losses, duel.win_rate) == (10, 0, 1, pytest.approx(10 / 11))
    assert duel.ci95[0] < 10 / 11 <= duel.ci95[1] == 1.0
    assert [one.rating for one in ratings] == [pytest.approx(1200, abs=1e-3), pytest.approx(800, abs=1e-3)]
    assert [one.ci95 for one in ratings] == [None, None]  # a third of the resamples has no loss


def test_ratings_are_the_maximum_of_the_likelihood() -> None:
    generator = np.random.default_rng(3)
    preferences = {
        (a, b): generator.choice([0.0, 0.5, 1.0], size=60, p=[0.3, 0.2, 0.5]).tolist()
        for a in range(4)
        for b in range(a + 1, 4)
    }

    def loss(strength: np.ndarray) -> float:
        return -sum(
            p * -np.logaddexp(0, strength[b] - strength[a]) + (1 - p) * -np.logaddexp(0, strength[a] - strength[b])
            for (a, b), values in preferences.items()
            for p in values
        )

    best = minimize(loss, np.zeros(4), tol=1e-12).x
    expected = 1000 + 400 * (best - best.mean()) / np.log(10)
    _, ratings = round_robin(preferences)
    assert [one.rating for one in ratings] == [pytest.approx(value, abs=0.05) for value in expected]
    for one in ratings:
        assert one.ci95 is not None
        assert one.rating is not None
        assert one.ci95[0] < one.rating < one.ci95[1]


def test_who_always_wins_has_no_finite_rating() -> None:
    _, ratings = round_robin({(0, 1): [1.0, 1.0], (0, 2): [1.0, 1.0], (1, 2): [1.0, 0.0]})
    assert [one.rating for one in ratings] == [None] * 3


def test_ties_are_half_a_win() -> None:
    duels, ratings = round_robin({(0, 1): [0.5, 0.5, 0.5]})
    assert (duels[0].wins, duels[0].ties, duels[0].ci95) == (0, 3, (0.5, 0.5))
    assert [one.rating for one in ratings] == [pytest.approx(1000), pytest.approx(1000)]
