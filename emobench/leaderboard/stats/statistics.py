"""What a leaderboard says of its numbers: a mean with its interval, and a difference with its p.

Legend: S seeds, I items. The seed is the unit of every comparison: what is claimed of an objective must hold for a
seed that nobody has run. `uncertainty.py` has the model.

**Items** are sampling units: the documents, subjects or passages that were drawn. What is seen of one unit, such as the
questions on one passage, is dependent, and counts once, as its weighted mean with its weight (`scores.by_unit`). Taken
for independent, examples in units of 10 reject up to half of true nulls (`tests/benchmarks/coverage_of_tests.py`).

**Weighted means and perplexities.** A weighted mean is a ratio of sums; its variance is that of the jackknife's
pseudo-values, I m_s - (I - 1) (m_s without item i) = m_s + (I - 1) h_i / (1 - h_i) (y_si - m_s) with the share h_i of
the weight, moved to have the seed's score m_s as their plain mean (Cochran, *Sampling Techniques*, 1977, par. 6.4 and
6.17; 1 - h_i makes good that a heavy item draws m_s towards itself). Equal weights leave y as it is. "exp_mean" is
treated on the log scale, and its interval exponentiated (the delta method, without its symmetric approximation).

**Jackknife pseudo-values.** They vary as the score does (Tukey; Efron & Stein, *Annals of Statistics* 9(3), 1981: on
average no less), but their mean is the score with its bias in 1 / n taken away, for which MAUVE of few texts is no
place. So examples say how a score varies and the score itself where it is: whatever their mean, they are moved to have
the score as their mean. For the other aggregates that moves nothing, so that no reader has to know which it was.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emobench.errors import MetricError
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.stats import uncertainty
from emobench.leaderboard.stats.noise_sources import components
from emobench.leaderboard.stats.uncertainty import Array, Randomness, Uncertainty
from emobench.tasks.scores import Examples, Score

MIN_SEEDS = 3
"""Fewer cannot tell an objective from a lucky seed: with 2, one degree of freedom is left."""

MIN_ITEMS = 10
"""With 5 and many seeds, up to 9 % of true nulls are rejected at a nominal 5 % (simulated); from 10 on at most 7 %."""

EQUAL = "equal values"
"""Stands for a test where there was nothing to test."""

UNRANKED_FLAG = "small_n"


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
        units=None if linearised_SI is None else linearised_SI.shape[1],
        ci95=interval,
        ci95_of=None if found is None else found.of,
        ci95_missing=why,
        higher_is_better=first.higher_is_better,
        unit=first.unit,
        flags=tuple(dict.fromkeys(flag for score in scores for flag in score.flags)),
        components=components(scores, linearised_SI),
    )


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one row, for `difference`.

    `values` maps seed to score; None stands for the seed of a row that has none (a `pretrained` model), which is
    constant over its rivals' seeds. `examples` maps the same seeds to the values of sampling units, or is None where
    they are not at hand. `of_examples` says that the score is one of examples, so that their noise belongs to it.
    """

    values: Mapping[int | None, float]
    examples: Mapping[int | None, Examples] | None
    higher_is_better: bool | None
    log_scale: bool
    flags: tuple[str, ...] = ()
    of_examples: bool = False

    @functools.cached_property
    def linearised(self) -> Mapping[int | None, Array]:
        """Seed -> (I,) linearised values in the order of the sorted ids, made once for all comparisons."""
        return {
            seed: linearise(examples, sorted(examples), self.centre(seed))
            for seed, examples in (self.examples or {}).items()
        }

    def centre(self, seed: int | None) -> float:
        """Return a seed's score on the scale of its examples."""
        value = self.values[seed]
        return math.log(value) if self.log_scale else value

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
            of_examples=bool(examples) or summary.ci95_of in ("items", "seeds and items"),
        )

    @classmethod
    def of_entry(cls, entry: Entry, metric: str, runs: Sequence[Mapping[str, Examples]] | None) -> Series | None:
        """Take a metric of an entry, with its runs' per-example results (by metric) if they are at hand.

        None where the entry lacks the metric, or holds a mean without its seeds' values.
        """
        summary = entry.metrics.get(metric)
        if summary is None:
            return None
        # What was not measured here has one value, whatever it is the mean of.
        seeds = () if len(summary.values) == 1 and (entry.untrained or entry.kind != "measured") else entry.seeds
        if len(summary.values) != max(len(seeds), 1):
            return None
        examples = [run[metric] for run in runs or () if metric in run and not _of_blocks(metric, summary)]
        return cls.of(summary, seeds, examples if len(examples) == len(summary.values) else None)


def _of_blocks(metric: str, summary: MetricSummary) -> bool:
    """Say whether examples may be neighbouring blocks of one text, as they were before entries had units."""
    return summary.units is None and metric.endswith(("/ppl_test", "/entropy"))


@dataclass(frozen=True)
class Difference:
    """`effect` is a minus b, or log(a / b) on the log scale (perplexities), with its 95 % interval and two-sided p.

    `test` names the test, `items` counts the items that were paired (None: the seeds' scores alone), and `detectable`
    is the smallest true effect that it would have found 4 times in 5. Rows that are equal, seed by seed and item by
    item, have the test EQUAL, no interval and nothing detectable: no noise was seen.
    """

    effect: float
    ci95: tuple[float, float] | None
    p: float
    of: Randomness
    seeds: int
    log_scale: bool
    test: str
    items: int | None
    detectable: float | None


def difference(a: Series, b: Series) -> Difference | None:
    """Compare two rows over their seeds; None where it is undetermined (`compare_rows` says why)."""
    found = compare_rows([a], [b])
    return None if isinstance(found, str) else found


def compare_rows(a: Sequence[Series], b: Sequence[Series]) -> Difference | str:
    """Compare two rows, or their means over tasks: each is given as its Series for the same tasks in the same order.

    Paired by seed from 3 common seeds on; rows with fewer common seeds and 3 or more of their own are compared as
    independent ones (Welch). Paired by item where the scores are of examples. Returns why where it is undetermined:
    where noise cannot be known, nothing is said. A mean over several tasks is taken of scores as they are, or of log
    perplexities where all are perplexities.
    """
    try:
        return _difference(a, b)
    except _Undetermined as why:
        return str(why)


def holm(ps: Sequence[float]) -> list[float]:
    """Return p values adjusted for their number (Holm, Scandinavian Journal of Statistics 6, 1979), in their order."""
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    adjusted, highest = [0.0] * len(ps), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, ps[index] * (len(ps) - rank)))
        adjusted[index] = highest
    return adjusted


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
        mean = _weighted_mean(score.examples)
        mean = math.exp(mean) if score.aggregate == "exp_mean" else mean
        if not math.isclose(mean, score.value, rel_tol=1e-3, abs_tol=1e-6):
            raise MetricError(f"A score is {score.value}, but the {score.aggregate} of its examples is {mean}.")


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
            found = uncertainty.crossed(linearised_SI, effective=[units], skewed=False)
        else:
            found = uncertainty.over_items(linearised_SI[0], units)
        return found, None if found else "all values are equal, so that no spread can be estimated"
    if len(scores) < 2:
        return None, "one seed, and no per-example results"
    found = uncertainty.over_seeds(np.array(_scaled(scores)))
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


def _weighted_mean(examples: Examples) -> float:
    value_I, weight_I = _arrays(examples, examples)
    return _mean(value_I, weight_I)


def linearise(examples: Examples, ids: Iterable[str], centre: float) -> Array:
    """Return (I,) pseudo-values of a weighted mean, with a score as plain mean.

    `centre` is the score on the examples' scale: their weighted mean, but of pseudo-values.
    """
    value_I, weight_I = _arrays(examples, ids)
    mean, others_I = _mean(value_I, weight_I), weight_I.sum() - weight_I
    lever_I = np.divide((len(value_I) - 1) * weight_I, others_I, out=np.zeros_like(weight_I), where=others_I > 0)
    pseudo_I = lever_I * (value_I - mean)
    return centre + pseudo_I - pseudo_I.mean()


def effective(examples: Examples) -> float:
    """Return how many examples of equal weight would be worth these."""
    weight_I = np.array([weight for _, weight in examples.values()])
    return float(weight_I.sum() ** 2 / np.square(weight_I).sum())


def _arrays(examples: Examples, ids: Iterable[str]) -> tuple[Array, Array]:
    pairs_I2 = np.array([examples[i] for i in ids], dtype=float)
    return pairs_I2[:, 0], pairs_I2[:, 1]


def _mean(value_I: Array, weight_I: Array) -> float:
    total = weight_I.sum()
    if not total > 0:
        raise MetricError("The weights of a metric's examples sum to 0; expected some weight above 0.")
    return float((value_I * weight_I).sum() / total)


def _is_log(examples: Examples, value: float) -> bool:
    """Say whether examples average to the logarithm of their score (nats) rather than to the score."""
    return math.isclose(math.exp(min(_weighted_mean(examples), 709.0)), value, rel_tol=1e-3)


class _Undetermined(Exception):
    """Why two rows cannot be told apart."""


def _difference(a: Sequence[Series], b: Sequence[Series]) -> Difference:
    seeds_a, seeds_b = _seeds(a, b)
    seeds = min(len(seeds_a), len(seeds_b))
    if seeds_a == [None]:
        raise _Undetermined("the values of single seeds are not known on either side")
    if seeds < MIN_SEEDS:
        counted = {0: "no common seed", 1: "1 common seed"}.get(seeds, f"{seeds} common seeds")
        raise _Undetermined(f"{counted}; {MIN_SEEDS} are needed, or as many other ones of each side")
    log = all(row.log_scale for row in (*a, *b))
    left_S, right_S = _task_mean(a, seeds_a, log), _task_mean(b, seeds_b, log)
    effect = float(left_S.mean() - right_S.mean())
    items, units = _items(a, b, seeds_a, seeds_b, log)
    if not items:
        _check_seeds_suffice(a, b)
    test, found = _tested(left_S, right_S, items, units, paired=seeds_a == seeds_b)
    count = sum(left.shape[1] for left, _ in items) or None
    if found is not None and (
        why := uncertainty.without_spread(left_S, right_S, items, paired=seeds_a == seeds_b, log=log)
    ):
        raise _Undetermined(why)
    if found is None and effect:
        raise _Undetermined(uncertainty.SAME_AMOUNT)
    if found is None:
        return Difference(0.0, None, 1.0, "seeds", seeds, log, EQUAL, count, None)
    interval, p = found.interval(effect), found.p_value(effect)
    return Difference(effect, interval, p, found.of, seeds, log, test, count, found.detectable)


def _check_seeds_suffice(a: Sequence[Series], b: Sequence[Series]) -> None:
    """Raise where seeds alone would miss noise: that of examples, or of the one value of a row without seeds."""
    if any(row.of_examples for row in (*a, *b)):
        # Seeds share the examples: a t test over seeds rejected up to 67 % of true nulls (simulated).
        raise _Undetermined("the per-example results of both sides are not at hand for the same examples")
    if any(None in row.values for row in (*a, *b)):
        raise _Undetermined("one value without seeds and without per-example results")


def _tested(
    left_S: Array, right_S: Array, items: Sequence[tuple[Array, Array]], units: Sequence[float], *, paired: bool
) -> tuple[str, Uncertainty | None]:
    """Return the test's name and what it knows of the noise."""
    if items and paired:
        return "random effects of seeds and items", uncertainty.crossed(
            *(left - right for left, right in items), effective=units
        )
    if items:
        return "random effects of seeds and items, unpaired seeds", uncertainty.unpaired(*items, effective=units)
    if paired:
        return "paired t over seeds", uncertainty.over_seeds(left_S - right_S)
    return "Welch's t over seeds", uncertainty.unpaired_seeds(left_S, right_S)


def _seeds(a: Sequence[Series], b: Sequence[Series]) -> tuple[list[int | None], list[int | None]]:
    """Return the seeds that both sides are compared over: common ones, or each side's own where too few are common.

    Every task of a side must have a seed; a row without seeds stands beside each of its rival's.
    """
    left, right = ([s for s in rows[0].values if all(s in row.values for row in rows)] for rows in (a, b))
    if None in left or None in right:
        seeds = right if None in left else left
        return seeds, seeds
    common = [seed for seed in left if seed in right]
    enough = len(common) >= MIN_SEEDS or min(len(left), len(right)) < MIN_SEEDS
    return (common, common) if enough else (left, right)


def _task_mean(rows: Sequence[Series], seeds: Sequence[int | None], log: bool) -> Array:
    """Return (S,) means over tasks."""
    return np.mean([_seed_values(row, seeds, log) for row in rows], axis=0)


def _seed_values(row: Series, seeds: Sequence[int | None], log: bool) -> Array:
    values_S = np.array([row.values[None if None in row.values else seed] for seed in seeds])
    return np.log(values_S) if log else values_S


def _items(
    a: Sequence[Series], b: Sequence[Series], seeds_a: Sequence[int | None], seeds_b: Sequence[int | None], log: bool
) -> tuple[list[tuple[Array, Array]], list[float]]:
    """Return both sides' (S, I) linearised values for each task, and how many items of equal weight they are worth.

    Nothing where a task lacks them for the same items.
    """
    found, units = [], []
    for row_a, row_b in zip(a, b, strict=True):
        left, right = _examples(row_a, seeds_a), _examples(row_b, seeds_b)
        same = left and right and all(e.keys() == left[0].keys() for e in (*left, *right))
        if not same or row_a.log_scale != row_b.log_scale or row_a.log_scale != log:
            return [], []
        if len(left[0]) < MIN_ITEMS:
            raise _Undetermined(f"{len(left[0])} sampling units (documents, passages); {MIN_ITEMS} are needed")
        found.append((_linearised(row_a, seeds_a), _linearised(row_b, seeds_b)))
        units.append(min(effective(e) for e in (*left, *right)))
    return found, units


def _linearised(row: Series, seeds: Sequence[int | None]) -> Array:
    return np.stack([row.linearised[None if None in row.linearised else seed] for seed in seeds])


def _examples(row: Series, seeds: Sequence[int | None]) -> list[Examples]:
    if row.examples is None:
        return []
    return [row.examples[None if None in row.examples else seed] for seed in seeds]
