"""The paired permutation test: the sides of each pair are swapped at random (Fisher)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from emobench.leaderboard.stats.thresholds import ALPHA

NAME = "paired permutation"
RESAMPLES = 9_999
BLOCK = 2_000_000
"""Numbers in memory at once."""


def permutation_p(delta_I: np.ndarray) -> float:
    """Return the two-sided p value of the sum of paired differences (I,): (1 + how many are as extreme) / (1 + B)."""
    limit = abs(delta_I.sum()) * (1 - 1e-9)  # rounding makes no resample less extreme
    extreme = 0
    for flipped_BI in _resamples(len(delta_I)):
        sums_B = delta_I.sum() - 2 * (flipped_BI @ delta_I)
        extreme += int((np.abs(sums_B) >= limit).sum())
    return (1 + extreme) / (1 + RESAMPLES)


def permutation_interval(delta_I: np.ndarray, share_I: np.ndarray) -> tuple[float, float] | None:
    """Return the 95 % interval of the sum of paired differences (I,): the shifts that the test does not reject.

    `share_I` is each pair's part of a shift, with the sum 1: 1 / I for differences divided by I. After a shift, a
    resample is as extreme if the pairs that it swaps, or the others, then differ to the other side. None if there are
    too few items to reject any shift.
    """
    lower_B, upper_B = [], []
    for flipped_BI in _resamples(len(delta_I)):
        swapped_B, share_B = flipped_BI @ delta_I, flipped_BI @ share_I
        # Of a resample that swaps all sides or none, every shift is as extreme.
        some = flipped_BI.any(1) & ~flipped_BI.all(1) & (share_B > 0) & (share_B < 1)
        shift_B2 = np.full((len(swapped_B), 2), np.inf)
        shift_B2[some, 0] = swapped_B[some] / share_B[some]
        shift_B2[some, 1] = (delta_I.sum() - swapped_B[some]) / (1 - share_B[some])
        lower_B.append(np.where(some, shift_B2.min(1), -np.inf))
        upper_B.append(shift_B2.max(1))
    place = int(ALPHA * (1 + RESAMPLES)) - 1
    low = float(np.partition(np.concatenate(lower_B), place)[place])
    high = -float(np.partition(-np.concatenate(upper_B), place)[place])
    if not np.isfinite([low, high]).all():
        return None
    rounding = 1e-9 * float(np.abs(delta_I).sum())
    return (0.0 if abs(low) <= rounding else low), (0.0 if abs(high) <= rounding else high)


def _resamples(items: int) -> Iterator[np.ndarray]:
    """Yield (B, I) blocks of the resamples: 1 where the sides of an item are swapped."""
    packed, rows = _signs(items, RESAMPLES), max(1, BLOCK // items)
    for start in range(0, RESAMPLES, rows):
        yield np.unpackbits(packed[start : start + rows], axis=1, count=items).astype(np.float64)


@lru_cache(maxsize=4)
def _signs(items: int, resamples: int) -> np.ndarray:
    """Return (B, I / 8) bits, the same at every call: a p value is reproducible."""
    return np.random.default_rng(0).integers(0, 256, (resamples, -(-items // 8)), dtype=np.uint8)
