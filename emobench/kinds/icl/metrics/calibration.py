"""Expected calibration error: how far confidence is from accuracy (Guo et al., ICML 2017, Eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from emobench.tasks.scores import SECONDARY, Score

BINS = 15


def calibration_error(confidences: Sequence[float], right: Sequence[bool], bins: int = BINS) -> Score:
    """Return the mean distance of accuracy and mean confidence over bins of equal width, weighted by their examples.

    Bin m of M holds confidences in ((m - 1) / M, m / M], the first one 0, too. A fraction; lower is better.
    """
    totals = [0.0] * bins  # of each bin: its confidences minus its right answers
    for confidence, hit in zip(confidences, right, strict=True):
        totals[min(max(math.ceil(confidence * bins), 1), bins) - 1] += confidence - hit
    value = math.fsum(map(abs, totals)) / len(right)
    return Score(
        value=value,
        n=len(right),
        higher_is_better=False,
        unit="fraction",
        flags=(SECONDARY,),
        aggregate="corpus",
    )
