"""What it means to take the best of n trials: its expected result, and the noise of the choice.

**Expected best.** How good a tuned result is at every budget (Dodge et al., EMNLP 2019). Dodge et al. resample the
observed trials with replacement, which is biased. The unbiased form averages the best over all subsets of n trials
(Tang et al., ACL 2020, Sec. 3): with the N values in ascending order, the value of rank i is the best of
C(i - 1, n - 1) of the C(N, n) subsets.

**Noise of the choice.** Trials are measured with noise, so that a repeated search chooses another trial, with another
true result. A test of the chosen settings alone rejects up to 9.9 % of true nulls at a nominal 5 %. So a tuned
difference has one more variance: that of the chosen trial's result, if the results of all trials are drawn again
around the measured ones (a parametric bootstrap). Trials vary as the seeds of the test do, and those of one seed by
their examples, too. `tests/benchmarks/evidence/tuned_nulls.py` simulates it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emobench.leaderboard.entry import Tuning
from emobench.leaderboard.stats.distributions import NORMAL
from emobench.leaderboard.stats.random_effects import Part

DRAWS = 20_000
HALF_WIDTH = NORMAL.inv_cdf(0.975)
"""Half the width of a 95 % interval, in standard errors."""


def expected_best(values: Sequence[float | None], *, higher_is_better: bool) -> list[float | None]:
    """Return the expected best of 1, 2, ..., N trials, from the results of N trials, in the metric's unit.

    The results must be independent, as those of a random search are. None: a trial without a result, worse than any
    other; and the expected best of so few trials that all of them may be without one.
    """
    best_first = sorted([value for value in values if value is not None], reverse=higher_is_better)
    count = len(values)
    curve: list[float | None] = [None] * (count - len(best_first))
    for trials in range(len(curve) + 1, count + 1):
        mean, share = 0.0, trials / count
        for place, value in enumerate(best_first, 1):
            mean += share * value
            # The share of the subsets whose best is the next one: C(i - 1, n - 1) falls with i.
            share *= 1 - (trials - 1) / max(count - place, 1)
        curve.append(mean)
    return curve


def choice_noise(searches: Sequence[Tuning], of_seeds: float, *, log: bool) -> Part:
    """Return the variance that the choices of some searches add to a difference, and its degrees of freedom.

    `of_seeds` is the variance of the result of one seed. With `log` the difference is of logarithms.
    """
    variance = freedom = 0.0
    for tuning in searches:
        values, squares = [], []
        for trial in tuning.trials:
            if trial.value is None:
                continue
            value, error = trial.value, (trial.half_width or 0.0) / HALF_WIDTH
            if log:
                value, error = math.log(value), error / value
            values.append(value)
            squares.append(error * error)  # which, unlike a power, may be infinite
        squared = of_seeds / len(tuning.seeds)
        if len(tuning.seeds) == 1:  # whose intervals are over examples alone
            squared += math.fsum(squares) / len(squares)
        if len(values) > 1:
            results_K = np.array(values)
            if not tuning.higher_is_better:
                results_K = -results_K
            # That of the largest result, if each is drawn again with its standard error.
            drawn_NK = np.random.default_rng(0).normal(results_K, math.sqrt(squared), (DRAWS, len(values)))
            variance += float(results_K[drawn_NK.argmax(axis=1)].var())
            freedom += len(values) - 1
    return variance, freedom
