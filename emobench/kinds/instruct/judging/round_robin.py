"""Judgements between all pairs of several models: wins, ties and losses, and ratings by Bradley and Terry (1952).

The intervals treat sampling units as a sample; all pairs of models share them. Pseudo-units, half of them wins and half
losses, are added to the units, as in the interval of Agresti and Coull (1998): an interval then has a width although
all units agree, and covers the truth with few units. Units are instructions; equal instructions are one.

Legend: M models, C pairs of models, N instructions, U units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.95
OF_RATE, OF_RATING = 2.0, 0.25
"""Pseudo-wins, and as many pseudo-losses, in the interval of a win rate, and of a rating. Intervals then cover at least
93 % with 10 units or more (of ratings, 20), also where a win rate is .95 (`test_round_robin.py`)."""
STEP = 1e-4
"""By which a win rate is changed for the derivatives of ratings."""
MIDDLE, ODDS_OF_TEN = 1000.0, 400.0
"""Of ratings: their mean, and the difference that means odds of 10 to 1."""

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Places = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Duel:
    """How one model fares against another one, by their places."""

    first: int
    second: int
    wins: int
    """Instructions on which the judge prefers the first one in both orders."""
    ties: int
    losses: int
    win_rate: float
    """The mean preference for the first one, a fraction."""
    ci95: Interval


@dataclass(frozen=True, kw_only=True)
class Rating:
    """A model's rating: 1000 is the mean, and 400 more are odds of 10 to 1."""

    rating: float | None
    """None where no finite one exists: some models won, or lost, every time against the others."""
    ci95: Interval | None
    """None where the rating is."""


def round_robin(
    preferences: Mapping[Places, Sequence[float]], outcomes: Mapping[Places, Sequence[int | None]], units: Sequence[str]
) -> tuple[list[Duel], list[Rating]]:
    """Return each pair's duel and each model's rating.

    `preferences[a, b]` holds how much model a is preferred to b on each instruction, for all a < b, in one order, and
    `outcomes[a, b]` whether a wins (1), loses (-1) or ties (0). `units` has the sampling unit of each instruction.
    """
    models = 1 + max(b for _, b in preferences)
    places = list(combinations(range(models), 2))
    values_CN = np.array([preferences[place] for place in places], dtype=np.float64)
    _, unit_N = np.unique(units, return_inverse=True)
    weights_U = np.bincount(unit_N).astype(np.float64)
    means_CU = np.array([np.bincount(unit_N, weights=values_N) for values_N in values_CN]) / weights_U
    rates_C = values_CN.mean(1)
    middle_C, covariance_CC = _moments(means_CU, weights_U, OF_RATE)
    factor = _factor(weights_U, OF_RATE)
    half_C = factor * np.sqrt(np.diag(covariance_CC))
    duels = []
    for c, (a, b) in enumerate(places):
        won = list(outcomes[a, b])
        wins, ties, losses = won.count(1), won.count(0), won.count(-1)
        ci95 = (max(float(middle_C[c] - half_C[c]), 0.0), min(float(middle_C[c] + half_C[c]), 1.0))
        rate = float(rates_C[c])
        duels.append(Duel(first=a, second=b, wins=wins, ties=ties, losses=losses, win_rate=rate, ci95=ci95))
    return duels, _rated(rates_C, means_CU, weights_U, places, models)


def _moments(means_CU: Floats, weights_U: Floats, pseudo: float) -> tuple[Floats, Floats]:
    """Return the weighted means with pseudo-units of the mean weight, and their covariance over units."""
    weight = weights_U.mean()
    total = weights_U.sum() + 2 * pseudo * weight
    count = len(weights_U) + 2 * pseudo
    middle_C = (means_CU @ weights_U + pseudo * weight) / total
    residuals_CU = (means_CU - middle_C[:, None]) * weights_U
    of_pseudo_C = pseudo * weight**2 * ((1 - middle_C) ** 2 + middle_C**2)
    covariance_CC = residuals_CU @ residuals_CU.T + np.diag(of_pseudo_C)
    return middle_C, covariance_CC / total**2 * count / (count - 1)


def _factor(weights_U: Floats, pseudo: float) -> float:
    """Return the quantile of Student's t, with degrees of freedom by the effective number of units."""
    from scipy.special import stdtrit

    effective = weights_U.sum() ** 2 / (weights_U**2).sum()
    return float(stdtrit(effective + 2 * pseudo - 1, (1 + LEVEL) / 2))


def _rated(rates_C: Floats, means_CU: Floats, weights_U: Floats, places: Sequence[Places], models: int) -> list[Rating]:
    """Return the ratings, with intervals by the delta method."""
    ratings_M = _ratings(rates_C, places, models)
    if ratings_M is None:
        return [Rating(rating=None, ci95=None)] * models
    middle_C, covariance_CC = _moments(means_CU, weights_U, OF_RATING)
    centre_M = _finite_ratings(middle_C, places, models)
    slopes_MC = np.empty((models, len(places)))
    for pair in range(len(places)):
        step_C = np.zeros(len(places))
        step_C[pair] = STEP * min(middle_C[pair], 1 - middle_C[pair])
        above_M = _finite_ratings(middle_C + step_C, places, models)
        below_M = _finite_ratings(middle_C - step_C, places, models)
        slopes_MC[:, pair] = (above_M - below_M) / (2 * step_C[pair])
    errors_M = np.sqrt(np.einsum("mc,cd,md->m", slopes_MC, covariance_CC, slopes_MC))
    half_M = _factor(weights_U, OF_RATING) * errors_M
    ratings = []
    for m in range(models):
        ci95 = (float(centre_M[m] - half_M[m]), float(centre_M[m] + half_M[m]))
        ratings.append(Rating(rating=float(ratings_M[m]), ci95=ci95))
    return ratings


def _ratings(rates_C: Floats, places: Sequence[Places], models: int) -> Floats | None:
    """Return the ratings that mean win rates give, (M,); a tie is half a win for each. None where they have no bound:
    each model must beat each other one through some chain (Ford, 1957)."""
    from scipy.sparse.csgraph import connected_components

    beats_MM = np.zeros((models, models))
    for (a, b), rate in zip(places, rates_C, strict=True):
        beats_MM[a, b], beats_MM[b, a] = rate, 1 - rate
    groups, _ = connected_components(beats_MM, connection="strong")
    return _finite_ratings(rates_C, places, models) if groups == 1 else None


def _finite_ratings(rates_C: Floats, places: Sequence[Places], models: int) -> Floats:
    from evalica import Winner, bradley_terry

    firsts, seconds = zip(*places, strict=True)
    won = [Winner.X] * len(places) + [Winner.Y] * len(places)
    weights = [*rates_C, *(1 - rates_C)]
    rated = bradley_terry([*firsts, *firsts], [*seconds, *seconds], won, weights=weights, tolerance=1e-12, limit=10_000)
    logs_M = np.log10(rated.scores.sort_index().to_numpy())
    return MIDDLE + ODDS_OF_TEN * (logs_M - logs_M.mean())
