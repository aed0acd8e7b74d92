"""One metric of one row, seed by seed, with the linearised values of its sampling units.

Legend: S seeds, I items.

**Items** are sampling units: the documents, subjects or passages that were drawn. Observations of one unit, such as the
questions on one passage, are dependent, and count once, as their weighted mean with their weight (`scores.by_unit`).
Taken for independent, examples in units of 10 reject up to half of true nulls (benchmark `evidence.null_comparisons`).

**Weighted means and perplexities.** A weighted mean is a ratio of sums; its variance is that of the jackknife's
pseudo-values, I m_s - (I - 1) (m_s without item i) = m_s + (I - 1) h_i / (1 - h_i) (y_si - m_s) with the share h_i of
the weight, moved to have the seed's score m_s as their plain mean (Cochran, *Sampling Techniques*, 1977, par. 6.4 and
6.17; 1 - h_i makes good that a heavy item draws m_s towards itself). Equal weights leave y as it is. "exp_mean" is
treated on the log scale, and its interval exponentiated (the delta method, without its symmetric approximation).

**Jackknife pseudo-values.** They vary as the score does (Tukey; Efron & Stein, *Annals of Statistics* 9(3), 1981: on
average no less), but their mean is the score corrected for its bias in 1 / n, which does not hold for MAUVE of few
texts. So they are shifted to have the score as their mean: they tell how the score varies, and not where it is. For
the other aggregates the shift is zero, so that no reader has to know the aggregate.

**Common examples.** A test is over the examples that all runs of a comparison have. A run may lack an example: a judge
gave no verdict, a text is too short for a score. Where few are missing, the others tell nearly as much. Where many are,
the runs may lack the hard ones, and the others would be a selection.

The runs may also name sampling units differently: a run that lacks one of two questions on a passage takes the other
for a unit of its own. All runs are therefore grouped alike: examples that are one unit in any run are one unit.

**Shared items.** Tasks may ask about the same items, such as one data set in several wordings. The mean over such tasks
is over the items that any of them has, each with the mean of its values: five wordings of 20 texts are 20 texts. Taken
for five samples, the variance of the mean could be five times too small.

Items are the same if their names are, and if these have a digest of the content in them: the rows of two corpora are
called "row 17", too.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, TypeAlias

import numpy as np

from emobench.core.errors import MetricError
from emobench.data.sampling_units import joined_units
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.stats.random_effects import Array
from emobench.tasks.scores import MOST_MISSING, Examples, only, single_examples, units_of

Seed: TypeAlias = int | None
"""A training seed; None stands for that of a row without seeds (a `pretrained` model)."""

UNKNOWN_SEEDS = "one value of a trained model, without its seeds: import one file per seed, with --seed"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one row, by seed.

    `values` maps seed to score; the key None is that of a row without seeds (a `pretrained` model), whose one value
    counts for every seed of its rival. `examples` maps the same seeds to the values of sampling units, or is None if
    they are not available. `of_examples`: the score is one of several examples, so that their noise belongs to it.
    `reach` is the largest difference that an item can have: 1 of fractions, and 0 of pseudo-values, which are no values
    of items.
    """

    values: Mapping[Seed, float]
    examples: Mapping[Seed, Examples] | None
    log_scale: bool
    of_examples: bool = False
    no_replicates: str | None = None
    """Why no verdict may rest on these values: the seeds are no replicates, or many examples are missing."""
    reach: float = math.inf
    data: str = ""
    """The digest of the texts that the task is named after, if available: WikiText-2 and 103 have one test text."""

    @functools.cached_property
    def linearised(self) -> Mapping[Seed, Array]:
        """Seed -> (I,) linearised values in the order of the sorted ids, computed once for all comparisons."""
        linearised = {}
        for seed, examples in (self.examples or {}).items():
            linearised[seed] = linearise(examples, sorted(examples), self.centre(seed))
        return linearised

    @functools.cached_property
    def scored(self) -> Mapping[Seed, Scored]:
        """Seed -> the examples that its score is made of."""
        return {seed: scored(examples) for seed, examples in (self.examples or {}).items()}

    @property
    def linearised_SI(self) -> Array:
        return np.stack(list(self.linearised.values()))

    def centre(self, seed: Seed) -> float:
        """Return a seed's score on the scale of its examples."""
        value = self.values[seed]
        return math.log(value) if self.log_scale else value

    def of_seeds(self, seeds: Sequence[Seed]) -> Series:
        """Return this series of some seeds; the one value of a row without seeds counts for each of them."""
        if list(self.values) == list(seeds):
            return self

        def chosen(by_seed: Mapping[Seed, Any]) -> dict[Seed, Any]:
            if None in by_seed:
                return dict.fromkeys(seeds, by_seed[None])
            return {seed: by_seed[seed] for seed in seeds}

        if self.examples is None:
            return replace(self, values=chosen(self.values))
        series = replace(self, values=chosen(self.values), examples=chosen(self.examples))
        vars(series).update(linearised=chosen(self.linearised), scored=chosen(self.scored))  # not computed again
        return series

    def only(self, common: Common) -> Series:
        """Return this series with the scores that the common examples give, in the common units.

        A score that is not the mean of its examples, because they are pseudo-values, moves as their mean does.
        """
        if common.complete and common.units is None:
            return self
        values, examples = {}, {}
        for seed, every_example in (self.examples or {}).items():
            examples[seed] = only(every_example, common.ids, common.units)
            mean, centre = weighted_mean(every_example), weighted_mean(examples[seed])
            if not math.isclose(mean, self.centre(seed), rel_tol=1e-9, abs_tol=1e-12):
                centre += self.centre(seed) - mean
            values[seed] = math.exp(min(centre, 709.0)) if self.log_scale else centre  # above, it is no float
        return replace(self, values=values, examples=examples)

    @classmethod
    def of(cls, summary: MetricSummary, seeds: Sequence[int], examples: Sequence[Examples] | None) -> Series:
        """Take a summary and, in the same order, its seeds and per-example values; no seeds: a row without training."""
        keys: list[Seed] = list(seeds) or [None]
        log_scale = summary.unit == "perplexity"
        if log_scale and examples:
            log_scale = is_log(examples[0], summary.values[0])
        reach = 1.0 if summary.unit == "fraction" else math.inf
        pairs = list(zip(examples or (), summary.values, strict=False))
        are_means = all(math.isclose(weighted_mean(one), value, rel_tol=1e-3, abs_tol=1e-6) for one, value in pairs)
        if not are_means and not all(is_log(one, value) for one, value in pairs):
            reach = 0.0  # they are pseudo-values
        return cls(
            values=dict(zip(keys, summary.values, strict=True)),
            examples=None if examples is None else dict(zip(keys, examples, strict=True)),
            log_scale=log_scale,
            of_examples=bool(examples) or summary.n != 1,
            reach=reach,
        )

    @classmethod
    def of_entry(cls, entry: Entry, metric: str, runs: Sequence[Mapping[str, Examples]] | None) -> Series | None:
        """Take a metric of an entry, with its runs' per-example results (by metric) if they are available.

        None if the entry lacks the metric, or holds a mean without its seeds' values.
        """
        summary = entry.metrics.get(metric)
        if summary is None:
            return None
        # A paper has one value, whatever it is the mean of.
        mean_alone = entry.kind == "published" or (entry.kind == "imported" and len(entry.seeds) != 1)
        single = len(summary.values) == 1 and (entry.untrained or mean_alone)
        seeds = () if single else entry.seeds
        if len(summary.values) != max(len(seeds), 1):
            return None
        examples = [run[metric] for run in runs or () if metric in run]
        if len(examples) != len(summary.values):
            examples = None
        task = metric.partition("/")[0]
        why = no_replicates(entry, task)
        if single and entry.kind == "imported" and not entry.untrained:
            why = UNKNOWN_SEEDS
        data = entry.provenance.data.get(f"{task}.test", "").partition(" ")[0]
        return replace(cls.of(summary, seeds, examples), data=data, no_replicates=why)


def mean(values: Sequence[float], *, log: bool) -> float:
    """Return the arithmetic mean, or the geometric one (of perplexities) where `log`."""
    return math.exp(fmean(map(math.log, values))) if log else fmean(values)


def mean_summary(like: MetricSummary, values: Sequence[float]) -> MetricSummary:
    """Return a summary of other values, such as each seed's mean over tasks; no interval of it is recorded."""
    spread = stdev(values) if len(values) > 1 else None
    plain = replace(like, n=None, units=None, ci95=None, ci95_of=None, flags=(), components={})
    return replace(plain, mean=fmean(values), std=spread, values=tuple(values))


def centre_of(summary: MetricSummary, *, log: bool) -> float:
    """Return the mean over a metric's seeds, the geometric one where `log`; the mean alone if there are no values."""
    return mean(summary.values or (summary.mean,), log=log)


def weighted_mean(examples: Examples) -> float:
    """Return the weighted mean of examples, the same in any order of these."""
    value_I, weight_I = _arrays(examples, sorted(examples))
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


def is_log(examples: Examples, value: float) -> bool:
    """Return whether examples average to the logarithm of their score (nats) rather than to the score."""
    return math.isclose(math.exp(min(weighted_mean(examples), 709.0)), value, rel_tol=1e-3)


def _arrays(examples: Examples, ids: Iterable[str]) -> tuple[Array, Array]:
    pairs_I2 = np.array([examples[i] for i in ids], dtype=float)
    return pairs_I2[:, 0], pairs_I2[:, 1]


def _mean(value_I: Array, weight_I: Array) -> float:
    total = weight_I.sum()
    if not total > 0:
        raise MetricError("The weights of a metric's examples sum to 0; expected some weight above 0.")
    return float((value_I * weight_I).sum() / total)


@dataclass(frozen=True)
class Scored:
    """The ids of the examples that a run's score is made of, and the run's sampling units."""

    ids: frozenset[str]
    sampled: Examples


@dataclass(frozen=True)
class Common:
    """The ids of the examples that every run has, and how many examples any run has.

    `units` is the sampling unit of each example that is not a unit of its own; None if all runs have the same examples
    in the same units.
    """

    ids: frozenset[str]
    total: int
    units: Mapping[str, str] | None

    @property
    def complete(self) -> bool:
        return len(self.ids) == self.total


def common_examples(*sides: Collection[Scored]) -> Common:
    """Return the common examples of the runs of each side.

    Raises MetricError if the runs of a side lack more than 5 % of all examples.
    """
    ids_of, sampled = [], []
    for side in sides:
        ids_of.append([run.ids for run in side])
        sampled += [run.sampled for run in side]
    ids, total = common_ids(*ids_of)
    return Common(ids, total, _joint_units(sampled))


def common_ids(*sides: Sequence[frozenset[str]]) -> tuple[frozenset[str], int]:
    """Return the ids that all runs of all sides have, and how many ids any run has; raises as `common_examples`."""
    runs = set(itertools.chain.from_iterable(sides))
    if len(runs) == 1:
        (only_ids,) = runs
        return only_ids, len(only_ids)
    everything = frozenset.union(*runs)
    kept = [frozenset.intersection(*side) for side in sides]
    common = frozenset.intersection(*kept)
    if not common:
        raise MetricError("the per-example results are not available for the same examples")
    missing = len(everything) - min(map(len, kept))
    if missing > MOST_MISSING * len(everything):
        share = f"{missing:,} of {len(everything):,}"
        raise MetricError(f"{share} examples are missing in a run of one side; at most {MOST_MISSING:.0%} may be")
    return common, len(everything)


def _joint_units(runs: Sequence[Examples]) -> Mapping[str, str] | None:
    """Return `Common.units`: units that have a name or an example in common are one."""
    first = runs[0]
    if all(run.keys() == first.keys() and units_of(run) == units_of(first) for run in runs[1:]):
        return None
    names = {}
    named = {}
    for run in runs:
        units = units_of(run)
        for example in single_examples(run):
            unit = units.get(example, example)
            names.setdefault(example, []).append(unit)
            if unit != example:
                named[example] = min(unit, named.get(example, unit))
    return {**named, **joined_units(names, named)}


def scored(sampled: Examples) -> Scored:
    """Return what a score is made of: an example without weight is in no score, and so missing."""
    ids = frozenset(example for example, (_, weight) in single_examples(sampled).items() if weight)
    return Scored(ids, sampled)


_CONTENT = re.compile(r"(?:.*[ -])?[0-9a-f]{12}(?:-.*)?")
"""Such as "9f86d081884c-17", "17-9f86d081884c" and "text 9f86d081884c"."""


@dataclass(frozen=True)
class TaskItems:
    """The names of a task's items, both sides' (S, I) values, and how many items of equal weight these are worth.

    `examples` are the names of the examples that the items consist of: a document has a row for a name, and its prompts
    have digests. `data` is a digest of the task's texts, if it is known.
    """

    names: tuple[str, ...]
    values: tuple[Array, Array]
    effective: float
    examples: frozenset[str] = frozenset()
    data: str = ""

    @property
    def contents(self) -> set[str]:
        """The names that are of a content, and the digest of the task's texts."""
        contents = set(filter(_CONTENT.fullmatch, [*self.names, *self.examples]))
        if self.data:
            contents.add(self.data)
        return contents


def joined_tasks(tasks: Sequence[TaskItems]) -> list[TaskItems]:
    """Return the tasks, with those that share items as one; the mean over them stays that over the tasks."""
    if len(tasks) < 2:
        return list(tasks)
    groups = []
    for task in tasks:
        names, together, apart = task.contents, [task], []
        for group in groups:
            if group[0] & names:
                names |= group[0]
                together = [*group[1], *together]
            else:
                apart.append(group)
        groups = [*apart, (names, together)]
    if len(groups) == len(tasks):
        return list(tasks)
    joined = []
    for _, together in groups:
        scale = len(together) * len(groups) / len(tasks)
        names, fewest = set(), math.inf
        for task in together:
            names.update(task.names)
            fewest = min(fewest, task.effective)
        ordered = sorted(names)
        place_of = {name: place for place, name in enumerate(ordered)}
        values = _pooled(together, 0, place_of) * scale, _pooled(together, 1, place_of) * scale
        joined.append(TaskItems(tuple(ordered), values, fewest))
    return joined


def _pooled(tasks: Sequence[TaskItems], side: int, place_of: dict[str, int]) -> Array:
    """Return (S, I) values of all items, whose mean is that of the tasks' means.

    An item counts by its deviations from the means of the tasks that have it, and more in a task of fewer items.
    """
    seeds = len(tasks[0].values[side])
    pooled_SI = np.zeros((seeds, len(place_of)))
    for task in tasks:
        values_SI = task.values[side]
        mean_S1 = values_SI.mean(axis=1, keepdims=True)
        places = [place_of[name] for name in task.names]
        pooled_SI += mean_S1
        pooled_SI[:, places] += len(place_of) / len(task.names) * (values_SI - mean_S1)
    return pooled_SI / len(tasks)


def no_replicates(entry: Entry, task: str) -> str | None:
    """Return why the runs of an entry are no replicates for a task; None if they are, or if nothing is known.

    Replicates are trainings that moved their weights, each to others.
    """
    seed_of = {}
    for run in entry.runs:
        for weights in run.weights:
            if task not in weights.tasks:
                continue
            if weights.trained == weights.base:
                return f"the training of seed {run.seed} changed no weight"
            if weights.trained in seed_of:
                return f"seeds {seed_of[weights.trained]} and {run.seed} have the same weights"
            seed_of[weights.trained] = run.seed
    return None
