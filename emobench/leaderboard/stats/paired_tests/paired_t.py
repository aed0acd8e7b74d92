"""The paired t test over items, as `scipy.stats.ttest_rel` has it."""

from __future__ import annotations

import math

import numpy as np

from emobench.leaderboard.stats.distributions import t_below, t_quantile
from emobench.leaderboard.stats.thresholds import ALPHA

NAME = "paired t test"


def paired_t(delta_I: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Return the two-sided p and the 95 % interval of the mean of paired differences (I,), which are not all equal."""
    mean, freedom = float(delta_I.mean()), len(delta_I) - 1
    error = float(delta_I.std(ddof=1)) / math.sqrt(len(delta_I))
    half = -t_quantile(freedom, ALPHA / 2) * error
    return 2 * t_below(freedom, -abs(mean) / error), (mean - half, mean + half)
