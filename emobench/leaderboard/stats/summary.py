"""The summary of one metric over seeds: mean, spread, and a 95 % interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.schema.entry import MetricSummary
from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.common_examples import Common, common_examples, scored
from emobench.leaderboard.stats.random_effects import Array, Uncertainty
from emobench.leaderboard.stats.series import Series, effective, weighted_mean
from emobench.leaderboard.stats.variance_components import components
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
    values = [float(score.value) for score in scores]
    items = _items(scores)
    found, why = _uncertainty(scores, items)
    values_SI = items.values_SI if isinstance(items, _Items) else None
    centre = float(np.mean(_scaled(scores) if values_SI is None else values_SI))
    flags = [flag for score in scores for flag in score.flags]
    if found and isinstance(items, _Items) and not items.common.complete:
        flags.append(f"interval over the {len(items.common.ids):,} of {items.common.total:,} examples of every seed")
    return MetricSummary(
        mean=math.fsum(values) / len(values),
        std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        values=tuple(values),
        n=min(score.n for score in scores),
        units=min(map(len, _sampled(scores)), default=None),
        ci95=None if found is None else _interval(scores, centre, found),
        ci95_of=None if found is None else found.of,
        ci95_missing=why,
        higher_is_better=first.higher_is_better,
        unit=first.unit,
        flags=tuple(dict.fromkeys(flags)),
        components=components(scores, values_SI),
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


@dataclass(frozen=True)
class _Items:
    """(S, I) linearised values of the units of the common examples, and how many units of equal weight these are."""

    values_SI: Array
    effective: float
    common: Common


def _items(scores: Sequence[Score]) -> _Items | str | None:
    """Return the items of scores; None where they are no examples that seeds share, or why no interval can be given."""
    sampled = _sampled(scores)
    if len(sampled) < len(scores):
        return None
    runs = [scored(examples) for examples in sampled]
    drawn = [run.ids | run.sampled.keys() for run in runs]  # examples and sampling units
    if len(scores) > 1 and len(frozenset().union(*drawn)) == sum(map(len, drawn)):
        return None  # independent draws: the seeds' spread has all of the noise
    try:
        common = common_examples(runs)
    except MetricError as error:
        return str(error)
    log = scores[0].aggregate == "exp_mean"
    series = Series(
        values={seed: score.value for seed, score in enumerate(scores)},
        examples=dict(enumerate(sampled)),
        higher_is_better=None,
        log_scale=log,
    ).only(common, range(len(scores)))
    units = list((series.examples or {}).values())
    if len(units[0]) < 2:
        return None
    return _Items(series.linearised_values(range(len(scores))), min(map(effective, units)), common)


def _sampled(scores: Sequence[Score]) -> list[Examples]:
    return [score.sampled for score in scores if score.sampled and score.aggregate != "corpus"]


def _uncertainty(scores: Sequence[Score], items: _Items | str | None) -> tuple[Uncertainty | None, str | None]:
    if isinstance(items, str):
        return None, items
    if items is not None:
        if len(scores) > 1:
            found = random_effects.crossed(items.values_SI, effective=[items.effective], skewed=False)
        else:
            found = random_effects.over_items(items.values_SI[0], items.effective, skewed=False)
        return found, None if found else "all values are equal, so that no spread can be estimated"
    if len(scores) < 2:
        return None, "one seed, and no per-example results"
    found = random_effects.over_seeds(np.array(_scaled(scores)))
    return found, None if found else "the seeds' values are equal, so that no spread can be estimated"


def _scaled(scores: Sequence[Score]) -> list[float]:
    """Return the scores, or their logarithms where examples are."""
    return [math.log(score.value) if score.aggregate == "exp_mean" else score.value for score in scores]


def _interval(scores: Sequence[Score], centre: float, found: Uncertainty) -> tuple[float, float]:
    log = scores[0].aggregate == "exp_mean"
    low, high = found.interval(centre)
    if log:
        # Two wild seeds may put the upper bound beyond the range of floats: the largest number stands for it.
        return math.exp(low), math.exp(min(high, 709.0))
    return (max(low, 0.0), min(high, 1.0)) if scores[0].unit == "fraction" else (low, high)
