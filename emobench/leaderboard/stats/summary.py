"""The summary of one metric over seeds: mean, spread, a 95 % interval, and where its noise comes from.

`components` are the variance by source, for metrics whose samples were repeated.

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
from emobench.leaderboard.entry import Component, MetricSummary
from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.classical import Interval
from emobench.leaderboard.stats.random_effects import Array, items_variance, residual_square
from emobench.leaderboard.stats.series import Common, Series, common_examples, effective, scored, weighted_mean
from emobench.tasks.scores import Examples, Score


def summarise(scores: Sequence[Score]) -> MetricSummary:
    """Summarise one metric over seeds: mean, spread, and a 95 % interval of what randomness can be estimated.

    With per-example values it covers seeds and items, of the examples that every seed has; with one seed items only;
    without per-example values seeds only, and none below 2 seeds. There is none where more than 5 % of the examples are
    missing in a seed. Mean and spread are those of all that was scored. Raises MetricError for a value that is not
    finite, scores of different kinds, or a value that is not the mean of its own examples.
    """
    if not scores:
        raise MetricError("A metric was summarised over no seeds; expected at least one score.")
    first = scores[0]
    for score in scores:
        _check_score(score, first)
    values, flags = [], []
    for score in scores:
        values.append(float(score.value))
        flags += score.flags
    scaled = np.array(values)
    if first.aggregate == "exp_mean":
        scaled = np.array(list(map(math.log, values)))
    noise = linearised_SI = None
    try:
        items = _items(scores)
        if items is not None:
            linearised_SI, units, common = items
            scaled = linearised_SI
            why = "all values are equal, so that no spread can be estimated"
            if len(scores) > 1:
                noise = random_effects.crossed(linearised_SI, effective=[units], skewed=False)
            else:
                noise = random_effects.over_items(linearised_SI[0], units, skewed=False)
            if noise and not common.complete:
                flags.append(f"interval over the {len(common.ids):,} of {common.total:,} examples of every seed")
        elif len(scores) < 2:
            why = "one seed, and no per-example results"
        else:
            noise = random_effects.over_seeds(scaled)
            why = "the seeds' values are equal, so that no spread can be estimated"
    except MetricError as error:
        why = str(error)
    ci95 = ci95_of = None
    if noise:
        low, high = noise.interval(float(np.mean(scaled)))
        ci95, ci95_of, why = _interval(first, low, high), noise.of, None
    return MetricSummary(
        mean=math.fsum(values) / len(values),
        std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        values=tuple(values),
        n=min(score.n for score in scores),
        units=min(map(len, _sampled(scores)), default=None),
        ci95=ci95,
        ci95_of=ci95_of,
        ci95_missing=why,
        higher_is_better=first.higher_is_better,
        unit=first.unit,
        flags=tuple(dict.fromkeys(flags)),
        components=components(scores, linearised_SI),
    )


def _check_score(score: Score, first: Score) -> None:
    kind = (score.unit, score.higher_is_better, score.aggregate)
    if kind != (first.unit, first.higher_is_better, first.aggregate):
        raise MetricError(f"A metric's seeds differ in unit, direction or aggregate: {kind}. They cannot be averaged.")
    if not math.isfinite(score.value):
        raise MetricError(f"A score is {score.value}; one that could not be computed is missing, with a reason.")
    if score.unit == "fraction" and not 0 <= score.value <= 1:
        raise MetricError(f"A score is {score.value}; a fraction lies in [0, 1] (percent is only shown).")
    if score.n < 1:
        raise MetricError("A score is of no examples; one that could not be computed is missing, with a reason.")
    if score.examples and score.aggregate in ("mean", "exp_mean"):
        mean = weighted_mean(score.examples)
        if score.aggregate == "exp_mean":
            mean = math.exp(mean)
        if not math.isclose(mean, score.value, rel_tol=1e-3, abs_tol=1e-6):
            raise MetricError(f"A score is {score.value}, but the {score.aggregate} of its examples is {mean}.")


def _items(scores: Sequence[Score]) -> tuple[Array, float, Common] | None:
    """Return (S, I) linearised values of the common examples' units, and how many units of equal weight these are.

    None if the scores are of no examples that seeds share. Raises MetricError if too few are common.
    """
    sampled = _sampled(scores)
    if len(sampled) < len(scores):
        return None
    runs = list(map(scored, sampled))
    drawn = [run.ids | run.sampled.keys() for run in runs]  # examples and sampling units
    if len(scores) > 1 and len(frozenset().union(*drawn)) == sum(map(len, drawn)):
        return None  # independent draws: the seeds' spread has all of the noise
    common = common_examples(runs)
    series = Series(
        values={seed: score.value for seed, score in enumerate(scores)},
        examples=dict(enumerate(sampled)),
        log_scale=scores[0].aggregate == "exp_mean",
    ).only(common)
    units = list((series.examples or {}).values())
    if len(units[0]) < 2:
        return None
    return series.linearised_SI, min(map(effective, units)), common


def _sampled(scores: Sequence[Score]) -> list[Examples]:
    return [score.sampled for score in scores if score.sampled and score.aggregate != "corpus"]


def _interval(score: Score, low: float, high: float) -> Interval:
    """Return the bounds of a mean on the scale of its score, within the range of a fraction."""
    if score.aggregate == "exp_mean":
        # Two wild seeds may put the upper bound beyond the range of floats: the largest number stands for it.
        return math.exp(low), math.exp(min(high, 709.0))
    return (max(low, 0.0), min(high, 1.0)) if score.unit == "fraction" else (low, high)


SOURCES = TRAINING, SAMPLING, KMEANS, TEXTS = "training seed", "sampling", "k-means", "texts"


def components(scores: Sequence[Score], linearised_SI: Array | None) -> dict[str, Component]:
    """Return the sources of a metric's noise, those that can be distinguished; none if nothing was repeated.

    `linearised_SI` holds the examples of each seed, moved to its score, or is None if seeds have other texts.
    Without a second sampling run neither seeds nor texts can be told from sampling, and no second k-means seed leaves
    its noise in that of sampling. Raises MetricError if seeds were repeated unlike one another.
    """
    values_SRK = _repeats(scores)
    if values_SRK is None:
        return {}
    if (scores[0].aggregate == "exp_mean") != (scores[0].unit == "perplexity"):
        linearised_SI = None  # examples of another scale than the repeats'
    _, runs, starts = values_SRK.shape
    kmeans = float(values_SRK.var(axis=2, ddof=1).mean()) if starts > 1 else 0.0
    parts = {}
    if runs > 1:
        parts = _of_runs(values_SRK.mean(axis=2), kmeans / starts, linearised_SI)
    if starts > 1:
        parts[KMEANS] = _component(kmeans, kmeans / values_SRK.size, starts)
    return {name: parts[name] for name in SOURCES if name in parts}


def _of_runs(run_SR: Array, rest: float, linearised_SI: Array | None) -> dict[str, Component]:
    """Return what repeated sampling runs tell; `rest` is the variance that k-means leaves in a run's value."""
    seeds, runs = run_SR.shape
    sampling = float(run_SR.var(axis=1, ddof=1).mean()) - rest
    # Of the mean over seeds only what runs have in common, or too few seeds to cancel, is left.
    left = float(run_SR.mean(axis=0).var(ddof=1)) - rest / seeds
    parts = {SAMPLING: _component(sampling, left / runs, runs)}
    shared = sampling
    if seeds > 1:
        interaction = residual_square(run_SR)
        training = float(run_SR.mean(axis=1).var(ddof=1)) - interaction / runs
        parts[TRAINING] = _component(training, training / seeds, seeds)
        shared = left + rest / seeds - interaction / seeds
    if linearised_SI is not None:
        texts = items_variance(linearised_SI) - shared / runs
        parts[TEXTS] = _component(texts, texts, linearised_SI.shape[1])
    return parts


def _component(variance: float, of_mean: float, draws: int) -> Component:
    return Component(sd=math.sqrt(max(variance, 0.0)), sd_of_mean=math.sqrt(max(of_mean, 0.0)), draws=draws)


def _repeats(scores: Sequence[Score]) -> Array | None:
    """Return (S, R, K) values, logarithms of perplexities; None if nothing was repeated."""
    try:
        values_SRK = np.array([score.repeats for score in scores], dtype=float)
    except ValueError:  # of no regular shape
        text = "A metric's seeds were repeated unlike one another; expected tables of one shape."
        raise MetricError(text) from None
    if values_SRK.size <= len(scores):
        return None
    log = scores[0].unit == "perplexity"
    if not np.isfinite(values_SRK).all() or (log and values_SRK.min() <= 0):
        raise MetricError("A repeated score is not finite, or a perplexity not above 0: it could not be computed.")
    return np.log(values_SRK) if log else values_SRK
