"""How good the best of n trials is expected to be: tuned results at every budget (Dodge et al., EMNLP 2019).

Dodge et al. resample the observed trials with replacement, which is biased. The unbiased form averages the best over
all subsets of n trials (Tang et al., ACL 2020, Sec. 3): with the N values in ascending order, the value of rank i is
the best of C(i - 1, n - 1) of the C(N, n) subsets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def expected_best(values: Sequence[float], *, higher_is_better: bool) -> list[float]:
    """Return the expected best of 1, 2, ..., N trials, from the results of N trials, in the metric's unit.

    The results must be independent, as those of a random search are.
    """
    ascending = sorted(values, reverse=not higher_is_better)
    count = len(ascending)
    curve = []
    for trials in range(1, count + 1):
        subsets = math.comb(count, trials)
        shares = [math.comb(rank, trials - 1) / subsets for rank in range(count)]
        curve.append(math.fsum(share * value for share, value in zip(shares, ascending, strict=True)))
    return curve
