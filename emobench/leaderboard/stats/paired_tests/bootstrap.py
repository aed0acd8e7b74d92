"""The paired bootstrap over texts, for the difference of two perplexities."""

from __future__ import annotations

import numpy as np

from emobench.leaderboard.stats.paired_tests.permutation import BLOCK, RESAMPLES
from emobench.leaderboard.stats.thresholds import ALPHA

NAME = "paired bootstrap over texts"
MIN_TEXTS = 40
"""Below, it rejects too often (9 % at 20)."""


def bootstrap(a_I2: np.ndarray, b_I2: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Return p and the 95 % interval of the difference a - b of weighted means; each text is (value, weight).

    The interval is that of percentiles, and p twice the share of resamples beyond 0: at most 5 % where the interval
    excludes it.
    """
    from scipy import stats  # 0.4 s, which few comparisons need

    def statistic(
        value_a: np.ndarray, weight_a: np.ndarray, value_b: np.ndarray, weight_b: np.ndarray, axis: int = -1
    ) -> np.ndarray:
        a = (value_a * weight_a).sum(axis) / weight_a.sum(axis)
        return a - (value_b * weight_b).sum(axis) / weight_b.sum(axis)

    found = stats.bootstrap(
        (*a_I2.T, *b_I2.T),
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, BLOCK // len(a_I2)),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    drawn_B = np.sort(found.bootstrap_distribution)
    beyond = 1 + min(int((drawn_B <= 0).sum()), int((drawn_B >= 0).sum()))
    place = int(ALPHA / 2 * (1 + RESAMPLES)) - 1
    return min(1.0, 2 * beyond / (1 + RESAMPLES)), (float(drawn_B[place]), float(drawn_B[-1 - place]))
