"""Metrics that are means over generated texts, and metrics of whole sampling runs: values, examples and repeats.

Legend: R sampling runs, N prompts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from emobench.core.errors import MetricError
from emobench.tasks.scores import Examples, Measure, Score


def mean_by_prompt(
    values_RN: ArrayLike,
    ids: Sequence[str],
    measure: Measure,
    *,
    weights_RN: ArrayLike | None = None,
    exponential: bool = False,
) -> Score:
    """Return the weighted mean of the values (each counts once unless weights are given); what weighs 0 has no value.

    The example of a prompt is the mean of its samples, with their weight. With `exponential` the metric is the
    exponential of the mean, as a perplexity is of nats. Raises MetricError if nothing of a run
    has a weight: its value would be missing among those of the runs.
    """
    values_RN = np.asarray(values_RN, dtype=np.float64)
    weights_RN = np.ones_like(values_RN) if weights_RN is None else np.asarray(weights_RN, dtype=np.float64)
    if not weights_RN.size or not (weights_RN.sum(1) > 0).all():
        raise MetricError("No generated text of a sampling run can be measured: all of them are empty, or too short.")
    sums_RN = np.where(weights_RN > 0, values_RN * weights_RN, 0.0)
    sums_N, weights_N = sums_RN.sum(0), weights_RN.sum(0)
    examples = {}
    for key, total, weight in zip(ids, sums_N.tolist(), weights_N.tolist(), strict=True):
        if weight:
            examples[key] = (total / weight, weight)
    final = math.exp if exponential else float
    repeats = []
    for total, weight in zip(sums_RN.sum(1).tolist(), weights_RN.sum(1).tolist(), strict=True):
        repeats.append((final(total / weight),))
    return measure.score(
        final(sums_N.sum() / weights_N.sum()),
        len(examples),
        examples=examples,
        aggregate="exp_mean" if exponential else "mean",
        repeats=tuple(repeats),
    )


def corpus_by_run(values_R: Sequence[float], n: int, measure: Measure, *, value: float | None = None) -> Score:
    """Return a metric of whole sampling runs, whose texts have no values: the mean of the runs, unless one is given.

    `n` is the number of texts of a run that it is made of.
    """
    value = sum(values_R) / len(values_R) if value is None else value
    repeats = tuple((value,) for value in values_R)
    return measure.score(value, n, aggregate="corpus", repeats=repeats)


def pseudo_values(value: float, ids: Sequence[str], without_N: ArrayLike) -> Examples | None:
    """Return the jackknife's pseudo-values, n value - (n - 1) (value without the example).

    They vary as the value does (Tukey; Efron & Stein, *Annals of Statistics* 9(3), 1981). None if the metric has no
    value without some example (nan).
    """
    without_N = np.asarray(without_N, dtype=np.float64)
    if len(ids) < 2 or not np.isfinite(without_N).all():
        return None
    pseudo_N = value + (len(ids) - 1) * (value - without_N)
    examples = {}
    for key, pseudo in zip(ids, pseudo_N.tolist(), strict=True):
        examples[key] = (pseudo, 1.0)
    return examples
