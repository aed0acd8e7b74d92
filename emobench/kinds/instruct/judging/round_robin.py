"""Judgements between all pairs of several models: wins, ties and losses, and ratings by Bradley and Terry (1952).

Intervals are percentiles of a bootstrap over instructions, which all pairs of models share.

Legend: M models, C pairs of models, N instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LEVEL = 0.95
MIDDLE, ODDS_OF_TEN = 1000.0, 400.0
"""Of ratings: their mean, and the difference that means odds of 10 to 1."""

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Duel:
    """How one model fares against another one, by their places."""

    first: int
    second: int
    wins: int
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
    """None where over 5 % of the resamples have no finite ratings."""


def round_robin(preferences: Mapping[tuple[int, int], Sequence[float]]) -> tuple[list[Duel], list[Rating]]:
    """Return each pair's duel and each model's rating.

    `preferences[a, b]` holds how much model a is preferred to b on each instruction, for all a < b, in one order.
    """
    models = 1 + max(b for _, b in preferences)
    places = list(combinations(range(models), 2))
    values_CN = np.array([preferences[place] for place in places], dtype=np.float64)
    count = values_CN.shape[1]
    drawn = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    resampled = [values_CN[:, row].mean(1) for row in drawn]
    rates_C = values_CN.mean(1)
    duels = [
        Duel(
            first=a,
            second=b,
            wins=int((values_CN[pair] > 0.5).sum()),
            ties=int((values_CN[pair] == 0.5).sum()),
            losses=int((values_CN[pair] < 0.5).sum()),
            win_rate=float(rates_C[pair]),
            ci95=_interval([rates[pair] for rates in resampled]),
        )
        for pair, (a, b) in enumerate(places)
    ]
    ratings_M = _ratings(rates_C, places, models)
    found = [one for rates in resampled if (one := _ratings(rates, places, models)) is not None]
    whole = len(found) >= LEVEL * RESAMPLES
    return duels, [
        Rating(
            rating=None if ratings_M is None else float(ratings_M[model]),
            ci95=_interval([one[model] for one in found]) if whole and ratings_M is not None else None,
        )
        for model in range(models)
    ]


def _interval(values: Sequence[float]) -> Interval:
    low, high = np.quantile(values, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _ratings(
    rates_C: NDArray[np.float64], places: Sequence[tuple[int, int]], models: int
) -> NDArray[np.float64] | None:
    """Return the ratings that mean win rates give, (M,); a tie is half a win for each."""
    from evalica import Winner, bradley_terry

    wins_MM = np.zeros((models, models))
    for (a, b), rate in zip(places, rates_C.tolist(), strict=True):
        wins_MM[a, b], wins_MM[b, a] = rate, 1 - rate
    if not _finite(wins_MM > 0):
        return None
    some = np.argwhere(wins_MM > 0)
    xs, ys = some[:, 0].tolist(), some[:, 1].tolist()
    weights = wins_MM[xs, ys].tolist()
    scores = bradley_terry(xs, ys, [Winner.X] * len(xs), weights=weights, tolerance=1e-9, limit=10_000).scores.to_dict()
    logs_M = np.log10([scores[model] for model in range(models)])
    return MIDDLE + ODDS_OF_TEN * (logs_M - logs_M.mean())


def _finite(beats_MM: NDArray[np.bool_]) -> bool:
    """Return whether each model beats each other one through some chain (Ford, 1957): else ratings have no bound."""
    reaches = beats_MM | np.eye(len(beats_MM), dtype=bool)
    for _ in range(len(beats_MM)):
        reaches = reaches | (reaches.astype(int) @ reaches.astype(int) > 0)
    return bool(reaches.all())
