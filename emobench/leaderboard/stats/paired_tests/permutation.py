"""The paired permutation test: the sides of each pair are swapped at random (Fisher)."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

NAME = "paired permutation"
RESAMPLES = 9_999
BLOCK = 2_000_000
"""Numbers in memory at once."""


def permutation_p(delta_I: np.ndarray) -> float:
    """Return the two-sided p value of the mean of paired differences (I,): (1 + how many are as extreme) / (1 + B)."""
    limit = abs(delta_I.sum()) * (1 - 1e-9)  # rounding makes no resample less extreme
    packed = _signs(len(delta_I), RESAMPLES)
    extreme, rows = 0, max(1, BLOCK // len(delta_I))
    for start in range(0, RESAMPLES, rows):
        flipped_BI = np.unpackbits(packed[start : start + rows], axis=1, count=len(delta_I))
        sums_B = delta_I.sum() - 2 * (flipped_BI.astype(np.float64) @ delta_I)
        extreme += int((np.abs(sums_B) >= limit).sum())
    return (1 + extreme) / (1 + RESAMPLES)


@lru_cache(maxsize=4)
def _signs(items: int, resamples: int) -> np.ndarray:
    """Return (B, I / 8) bits, the same at every call: a p value is reproducible."""
    return np.random.default_rng(0).integers(0, 256, (resamples, -(-items // 8)), dtype=np.uint8)
