"""Where the noise of a metric comes from: its variance by source, for metrics whose samples were repeated.

Legend: S training seeds, R sampling runs, K k-means seeds, I texts.

A value y_srk is that of seed s, sampling run r and k-means seed k on one draw of I texts. Random effects, by mean
squares (Searle, Casella & McCulloch, *Variance Components*, 1992, ch. 4), unbiased before they are cut off at 0:

- **k-means** is nested: the k-means seed of another run starts elsewhere, as the features are others. (Measured on 5
  runs by 5 seeds, what a k-means seed had in common over the runs was no more than chance, F = 1.1.) Its variance is
  that over k within a cell (s, r).
- **sampling** is nested in the seed where random numbers differ between seeds, and crossed with it where they are the
  same, as in our protocols. Both are met by counting what a run has in common over seeds and what it has not: the
  variance over r within a seed, without the share of k-means in it. (Measured on 3 seeds by 5 runs of barely trained
  models, the runs' ROUGE-1 of two seeds correlated by .93 to .98, their MAUVE by .34 to .81: taken for nested, the
  seeds would hide in it, and averaging over seeds would be believed to cancel it.)
- **training seed**: the variance over s of the seeds' values, without the noise of R runs in each, which is taken from
  the interaction of s and r. Seeds alone, without repeats, would count the sampling noise that is left as theirs.
- **texts**: the items' part of the crossed model in `random_effects.py`, without what sampling runs have in common over
  seeds, as that comes with the texts. Of one seed, the variance over its examples without all of its sampling noise;
  what a text makes of this one seed is then in it. For MAUVE examples are jackknife pseudo-values.

Perplexities are on the log scale, where a standard deviation of 0.01 is 1 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.schema.metric import Component
from emobench.leaderboard.stats.random_effects import Array, items_variance
from emobench.tasks.scores import Score

SOURCES = TRAINING, SAMPLING, KMEANS, TEXTS = "training seed", "sampling", "k-means", "texts"


def components(scores: Sequence[Score], linearised_SI: Array | None) -> dict[str, Component]:
    """Return the sources of a metric's noise, those that can be told apart; none where nothing was repeated.

    `linearised_SI` holds the examples of each seed, moved to its score, or is None where seeds have other texts.
    Without a second sampling run neither seeds nor texts can be told from sampling, and no second k-means seed leaves
    its noise in that of sampling. Raises MetricError where seeds were repeated unlike one another.
    """
    values_SRK = _repeats(scores)
    if values_SRK is None:
        return {}
    if (scores[0].aggregate == "exp_mean") != _is_log(scores):
        linearised_SI = None  # examples of another scale than the repeats'
    _, runs, starts = values_SRK.shape
    kmeans = float(values_SRK.var(axis=2, ddof=1).mean()) if starts > 1 else 0.0
    found = _of_runs(values_SRK.mean(axis=2), kmeans / starts, linearised_SI) if runs > 1 else {}
    if starts > 1:
        found[KMEANS] = _component(kmeans, kmeans / values_SRK.size, starts)
    return {name: found[name] for name in SOURCES if name in found}


def _of_runs(run_SR: Array, rest: float, linearised_SI: Array | None) -> dict[str, Component]:
    """Return what repeated sampling runs tell; `rest` is the variance that k-means leaves in a run's value."""
    seeds, runs = run_SR.shape
    sampling = float(run_SR.var(axis=1, ddof=1).mean()) - rest
    # Of the mean over seeds only what runs have in common, or too few seeds to cancel, is left.
    left = float(run_SR.mean(axis=0).var(ddof=1)) - rest / seeds
    found = {SAMPLING: _component(sampling, left / runs, runs)}
    shared = sampling
    if seeds > 1:
        residual_SR = run_SR - run_SR.mean(axis=1)[:, None] - run_SR.mean(axis=0) + run_SR.mean()
        interaction = float(np.square(residual_SR).sum()) / ((seeds - 1) * (runs - 1))
        training = float(run_SR.mean(axis=1).var(ddof=1)) - interaction / runs
        found[TRAINING] = _component(training, training / seeds, seeds)
        shared = left + rest / seeds - interaction / seeds
    if linearised_SI is not None:
        texts = items_variance(linearised_SI) - shared / runs
        found[TEXTS] = _component(texts, texts, linearised_SI.shape[1])
    return found


def _component(variance: float, of_mean: float, draws: int) -> Component:
    return Component(sd=math.sqrt(max(variance, 0.0)), sd_of_mean=math.sqrt(max(of_mean, 0.0)), draws=draws)


def _repeats(scores: Sequence[Score]) -> Array | None:
    """Return (S, R, K) values, logarithms of perplexities; None where nothing was repeated."""
    shapes = {(len(score.repeats), *sorted({len(row) for row in score.repeats})) for score in scores}
    if len(shapes) > 1 or any(len(shape) > 2 for shape in shapes):
        told = f"{sorted(shapes)} sampling runs and k-means seeds"
        raise MetricError(f"A metric's seeds were repeated unlike one another: {told}; expected one table's shape.")
    values_SRK = np.array([score.repeats for score in scores], dtype=float)
    if values_SRK.size <= len(scores):
        return None
    log = _is_log(scores)
    if not np.isfinite(values_SRK).all() or (log and values_SRK.min() <= 0):
        raise MetricError("A repeated score is not finite, or a perplexity not above 0: it could not be computed.")
    return np.log(values_SRK) if log else values_SRK


def _is_log(scores: Sequence[Score]) -> bool:
    return scores[0].unit == "perplexity"
