"""How sure a mean and a difference are, when both the seeds and the evaluated items are samples.

Legend: S seeds, I items. Each seed s gives item i a value y_si with weight w_si; a seed's score is the weighted mean.

**Model.** Two crossed random effects, y_si = mean + seed_s + item_i + residual_si: the same items are seen by every
seed. With the mean squares MS of seeds, items and residual (two-way analysis of variance without replication),
E[MS_seeds] = I v_seed + v_residual, E[MS_items] = S v_item + v_residual, E[MS_residual] = v_residual, so that

    variance of the mean = v_seed / S + v_item / I + v_residual / (S I) = (MS_seeds + MS_items - MS_residual) / (S I)

which counts the residual once (Searle, Casella & McCulloch, *Variance Components*, 1992, ch. 4). It is split into
MS_seeds / (S I), with S - 1 degrees of freedom, and max(MS_items - MS_residual, 0) / (S I), with I - 1.

**Critical value.** The mean of the two parts' Student t quantiles, weighted by the parts (Cochran & Cox, *Experimental
Designs*, 1950, par. 4.14; PROC TTEST's COCHRAN option). Satterthwaite's degrees of freedom are the usual choice and
are wrong here: with 2 seeds they reject up to 13 % of true nulls at a nominal 5 %, with 3 seeds up to 8 %, because a
seed mean square on 1 or 2 degrees of freedom is often near zero by chance. Cochran and Cox's rejects 2 to 6 %.
A t test over the seeds alone ignores v_item and rejects up to 50 %.

**Weighted means and perplexities.** A weighted mean is a ratio of sums; its variance is that of the linearised
values m_s + (w_si / mean_i w_si) (y_si - m_s), which have the seed's score m_s as their plain mean (Cochran,
*Sampling Techniques*, 1977, par. 6.4). Equal weights leave y as it is. "exp_mean" is treated on the log scale, and its
interval exponentiated (the delta method, without its symmetric approximation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from scipy import optimize, special

from emobench.errors import MetricError
from emobench.leaderboard.entry import MetricSummary
from emobench.tasks.scores import Score

Array: TypeAlias = np.ndarray
Examples: TypeAlias = Mapping[str, tuple[float, float]]
Randomness: TypeAlias = Literal["seeds and items", "seeds", "items"]

ALPHA = 0.05
SMALLEST_P = 1e-100  # beyond it the t quantiles of a few degrees of freedom overflow
UNRANKED_FLAG = "small_n"


@dataclass(frozen=True)
class Uncertainty:
    """The variance of a mean, as (variance, degrees of freedom) parts, and the randomness that it covers."""

    parts: tuple[tuple[float, int], ...]
    of: Randomness

    @property
    def standard_error(self) -> float:
        return math.sqrt(sum(variance for variance, _ in self.parts))

    def critical(self, alpha: float = ALPHA) -> float:
        """Return the two-sided critical value of mean / standard_error (Cochran & Cox)."""
        total = sum(variance for variance, _ in self.parts)
        return sum(v * -float(special.stdtrit(df, alpha / 2)) for v, df in self.parts) / total

    def p_value(self, effect: float) -> float:
        """Return the two-sided p of an effect against 0: the alpha whose critical value it just reaches."""
        t = abs(effect) / self.standard_error
        if t == 0:
            return 1.0
        low, high = math.log(SMALLEST_P), -1e-12
        if self.critical(SMALLEST_P) <= t:
            return SMALLEST_P
        if self.critical(math.exp(high)) >= t:
            return 1.0
        found = optimize.root_scalar(lambda log_p: self.critical(math.exp(log_p)) - t, bracket=(low, high))
        return math.exp(found.root)


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
    found, why = _uncertainty(scores)
    interval = None if found is None else _interval(scores, found)
    return MetricSummary(
        mean=math.fsum(values) / len(values),
        std=float(np.std(values, ddof=1)) if len(values) > 1 else None,
        values=tuple(values),
        n=min(score.n for score in scores),
        ci95=interval,
        ci95_of=None if found is None else found.of,
        ci95_missing=why,
        higher_is_better=first.higher_is_better,
        unit=first.unit,
        flags=tuple(dict.fromkeys(flag for score in scores for flag in score.flags)),
    )


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one row, for `difference` and `best`.

    `values` maps seed to score; None stands for the seed of a row that has none (a `pretrained` model), which is
    constant over its rivals' seeds. `examples` maps the same seeds to per-example values, or is None.
    """

    values: Mapping[int | None, float]
    examples: Mapping[int | None, Examples] | None
    higher_is_better: bool | None
    log_scale: bool
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, summary: MetricSummary, seeds: Sequence[int], examples: Sequence[Examples] | None) -> Series:
        """Take a summary and, in the same order, its seeds and per-example values; no seeds: a row without training."""
        keys: list[int | None] = list(seeds) or [None]
        return cls(
            values=dict(zip(keys, summary.values, strict=True)),
            examples=None if examples is None else dict(zip(keys, examples, strict=True)),
            higher_is_better=summary.higher_is_better,
            log_scale=summary.unit == "perplexity" and (not examples or _is_log(examples[0], summary.values[0])),
            flags=summary.flags,
        )


@dataclass(frozen=True)
class Difference:
    """`effect` is a minus b, or log(a / b) on the log scale (perplexities), with its 95 % interval and two-sided p."""

    effect: float
    ci95: tuple[float, float]
    p: float
    of: Randomness
    seeds: int
    log_scale: bool


def difference(a: Series, b: Series) -> Difference | None:
    """Compare two rows, paired by seed and, where both sides have them, by item; None where it is undetermined.

    With per-example values of the same items on both sides: the random-effects model on the differences, from 2
    common seeds on. Else the paired t test on the seeds' values, from 3 common seeds on.
    """
    seeds = _common_seeds(a, b)
    log = a.log_scale and b.log_scale
    if len(seeds) < 2:
        return None
    left, right = (_linearised(s, seeds, log) for s in (a, b))
    if left is not None and right is not None and left[0] == right[0]:
        delta_SI = left[1] - right[1]
        effect, found = float(delta_SI.mean()), crossed(delta_SI)
    elif len(seeds) >= 3:
        delta_S = _seed_values(a, seeds, log) - _seed_values(b, seeds, log)
        effect, found = float(delta_S.mean()), _over_seeds(delta_S)
    else:
        return None
    if found is None:
        return None
    half = found.critical() * found.standard_error
    return Difference(effect, (effect - half, effect + half), found.p_value(effect), found.of, len(seeds), log)


def best(rows: Mapping[str, Series]) -> str | None:
    """Return the row that is better than every other beyond noise (two-sided 5 %, Holm over its rivals), or None.

    None too where a comparison is undetermined, the metric has no better direction, or a row is flagged small_n.
    """
    if len(rows) < 2 or any(UNRANKED_FLAG in row.flags or row.higher_is_better is None for row in rows.values()):
        return None
    sign = 1 if next(iter(rows.values())).higher_is_better else -1
    top = max(rows, key=lambda name: sign * float(np.mean(list(rows[name].values.values()))))
    ps = []
    for name in rows.keys() - {top}:
        found = difference(rows[top], rows[name])
        if found is None or sign * found.effect <= 0:
            return None
        ps.append(found.p)
    holm = all(p <= ALPHA / (len(ps) - rank) for rank, p in enumerate(sorted(ps)))
    return top if holm else None


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
    if score.examples and score.aggregate != "corpus":
        mean = _weighted_mean(score.examples)
        mean = math.exp(mean) if score.aggregate == "exp_mean" else mean
        if not math.isclose(mean, score.value, rel_tol=1e-3, abs_tol=1e-6):
            raise MetricError(f"A score is {score.value}, but the {score.aggregate} of its examples is {mean}.")


def _uncertainty(scores: Sequence[Score]) -> tuple[Uncertainty | None, str | None]:
    log = scores[0].aggregate == "exp_mean"
    examples = [score.examples for score in scores if score.examples and score.aggregate != "corpus"]
    same_items = len(examples) == len(scores) and all(e.keys() == examples[0].keys() for e in examples)
    if same_items and len(examples[0]) > 1:
        values_SI = np.stack([_linearise(e, list(examples[0])) for e in examples])
        found = crossed(values_SI) if len(scores) > 1 else _over_items(values_SI[0])
        return found, None if found else "all values are equal, so that no spread can be estimated"
    if len(scores) < 2:
        return None, "one seed, and no per-example results"
    found = _over_seeds(np.array([math.log(s.value) if log else s.value for s in scores]))
    return found, None if found else "the seeds' values are equal, so that no spread can be estimated"


def _interval(scores: Sequence[Score], found: Uncertainty) -> tuple[float, float]:
    log = scores[0].aggregate == "exp_mean"
    centre = float(np.mean([math.log(s.value) if log else s.value for s in scores]))
    half = found.critical() * found.standard_error
    low, high = centre - half, centre + half
    if log:
        # Two wild seeds may put the upper bound beyond the range of floats: the largest number stands for it.
        return math.exp(low), math.exp(min(high, 709.0))
    return (max(low, 0.0), min(high, 1.0)) if scores[0].unit == "fraction" else (low, high)


def crossed(values_SI: Array) -> Uncertainty | None:
    """Return the uncertainty of the mean of S >= 2 seeds by I >= 2 items, or None where there is no spread at all."""
    seeds, items = values_SI.shape
    seed_mean_S, item_mean_I, mean = values_SI.mean(1), values_SI.mean(0), values_SI.mean()
    residual_SI = values_SI - seed_mean_S[:, None] - item_mean_I + mean
    ms_seeds = items * float(np.square(seed_mean_S - mean).sum()) / (seeds - 1)
    ms_items = seeds * float(np.square(item_mean_I - mean).sum()) / (items - 1)
    ms_residual = float(np.square(residual_SI).sum()) / ((seeds - 1) * (items - 1))
    cells = seeds * items
    parts = ((ms_seeds / cells, seeds - 1), (max(ms_items - ms_residual, 0.0) / cells, items - 1))
    return _uncertain(parts, "seeds and items", values_SI)


def _over_items(values_I: Array) -> Uncertainty | None:
    return _uncertain(((float(values_I.var(ddof=1)) / len(values_I), len(values_I) - 1),), "items", values_I)


def _over_seeds(values_S: Array) -> Uncertainty | None:
    return _uncertain(((float(values_S.var(ddof=1)) / len(values_S), len(values_S) - 1),), "seeds", values_S)


def _uncertain(parts: tuple[tuple[float, int], ...], of: Randomness, values: Array) -> Uncertainty | None:
    """Return None where the spread is nothing but rounding: an interval of no width would claim certainty."""
    rounding = (1e-12 * float(np.abs(values).max())) ** 2
    return Uncertainty(parts, of) if sum(variance for variance, _ in parts) > rounding else None


def _weighted_mean(examples: Examples) -> float:
    total = math.fsum(weight for _, weight in examples.values())
    if not total > 0:
        raise MetricError("The weights of a metric's examples sum to 0; expected some weight above 0.")
    return math.fsum(value * weight for value, weight in examples.values()) / total


def _linearise(examples: Examples, ids: Sequence[str]) -> Array:
    """Return (I,) values with the examples' weighted mean as plain mean, and the ratio estimator's variance."""
    value_I, weight_I = np.array([examples[i] for i in ids], dtype=float).T
    mean = _weighted_mean(examples)
    return mean + weight_I / weight_I.mean() * (value_I - mean)


def _common_seeds(a: Series, b: Series) -> list[int | None]:
    if None in a.values:
        return list(b.values)
    return [seed for seed in a.values if seed in b.values or None in b.values]


def _is_log(examples: Examples, value: float) -> bool:
    """Say whether examples average to the logarithm of their score (nats) rather than to the score."""
    return math.isclose(math.exp(min(_weighted_mean(examples), 709.0)), value, rel_tol=1e-3)


def _seed_values(row: Series, seeds: Sequence[int | None], log: bool) -> Array:
    values_S = np.array([row.values[None if None in row.values else seed] for seed in seeds])
    return np.log(values_S) if log else values_S


def _linearised(row: Series, seeds: Sequence[int | None], log: bool) -> tuple[set[str], Array] | None:
    """Return the item ids and (S, I) linearised values in the order of the sorted ids, or None without such values."""
    if row.examples is None:
        return None
    examples = [row.examples[None if None in row.examples else seed] for seed in seeds]
    ids = sorted(examples[0])
    if len(ids) < 2 or any(e.keys() != examples[0].keys() for e in examples):
        return None
    return set(ids), np.stack([_linearise(e, ids) for e in examples])
