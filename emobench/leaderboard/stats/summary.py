"""The summary of one metric over seeds: mean, spread, and a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emobench.errors import MetricError
from emobench.leaderboard.schema.entry import MetricSummary
from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.random_effects import Array, Uncertainty
from emobench.leaderboard.stats.series import effective, linearise, weighted_mean
from emobench.leaderboard.stats.variance_components import components
from emobench.tasks.scores import Score


def summarise(scores: Sequence[Score]) -> MetricSummary:
    """Summarise one metric over seeds: mean, spread, and a 95 % interval of what randomness can be estimated.

    With per-example values of the same items for every seed it covers seeds and items; with one seed items only;
    without per-example values seeds only, and none below 2 seeds. Raises MetricError for a value that is not finite,
    scores of different kinds, or a value that is not the mean of its own examples.
    """
    if not scores:
        raise MetricError("A metric was summarised over no seeds; expected at least one score.")
    first = scores[0]
    for score in scores:
        _check_score(score, first)
    values = [float(score.value) for score in scores]
    linearised_SI = _linearised_scores(scores)
    found, why = _uncertainty(scores, linearised_SI)
    interval = None if found is None else _interval(scores, found)
    return MetricSummary(
        mean=math.fsum(values) / len(values),
        std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        values=tuple(values),
        n=min(score.n for score in scores),
        units=_units(scores),
        ci95=interval,
        ci95_of=None if found is None else found.of,
        ci95_missing=why,
        higher_is_better=first.higher_is_better,
        unit=first.unit,
        flags=tuple(dict.fromkeys(flag for score in scores for flag in score.flags)),
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
        mean = math.exp(mean) if score.aggregate == "exp_mean" else mean
        if not math.isclose(mean, score.value, rel_tol=1e-3, abs_tol=1e-6):
            raise MetricError(f"A score is {score.value}, but the {score.aggregate} of its examples is {mean}.")


def _units(scores: Sequence[Score]) -> int | None:
    """Return the sampling units behind one value, the fewest of a seed; None for scores that are not of examples."""
    counts = [len(score.sampled) for score in scores if score.sampled and score.aggregate != "corpus"]
    return min(counts, default=None)


def _linearised_scores(scores: Sequence[Score]) -> Array | None:
    """Return (S, I) linearised values of units, or None where the scores are not of the same two or more."""
    examples = [score.sampled for score in scores if score.sampled and score.aggregate != "corpus"]
    same_items = len(examples) == len(scores) and all(e.keys() == examples[0].keys() for e in examples)
    if not same_items or len(examples[0]) < 2:
        return None
    centres = _scaled(scores)
    return np.stack([linearise(e, list(examples[0]), at) for e, at in zip(examples, centres, strict=True)])


def _uncertainty(scores: Sequence[Score], linearised_SI: Array | None) -> tuple[Uncertainty | None, str | None]:
    if linearised_SI is not None:
        units = min(effective(score.sampled) for score in scores if score.sampled)
        if len(scores) > 1:
            found = random_effects.crossed(linearised_SI, effective=[units], skewed=False)
        else:
            found = random_effects.over_items(linearised_SI[0], units)
        return found, None if found else "all values are equal, so that no spread can be estimated"
    if len(scores) < 2:
        return None, "one seed, and no per-example results"
    found = random_effects.over_seeds(np.array(_scaled(scores)))
    return found, None if found else "the seeds' values are equal, so that no spread can be estimated"


def _scaled(scores: Sequence[Score]) -> list[float]:
    """Return the scores, or their logarithms where examples are."""
    return [math.log(score.value) if score.aggregate == "exp_mean" else score.value for score in scores]


def _interval(scores: Sequence[Score], found: Uncertainty) -> tuple[float, float]:
    log = scores[0].aggregate == "exp_mean"
    centre = float(np.mean(_scaled(scores)))
    low, high = found.interval(centre)
    if log:
        # Two wild seeds may put the upper bound beyond the range of floats: the largest number stands for it.
        return math.exp(low), math.exp(min(high, 709.0))
    return (max(low, 0.0), min(high, 1.0)) if scores[0].unit == "fraction" else (low, high)
