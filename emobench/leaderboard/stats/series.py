"""One metric of one row, seed by seed, with the linearised values of its sampling units.

Legend: S seeds, I items.

**Items** are sampling units: the documents, subjects or passages that were drawn. What is seen of one unit, such as the
questions on one passage, is dependent, and counts once, as its weighted mean with its weight (`scores.by_unit`). Taken
for independent, examples in units of 10 reject up to half of true nulls (benchmark `evidence.null_comparisons`).

**Weighted means and perplexities.** A weighted mean is a ratio of sums; its variance is that of the jackknife's
pseudo-values, I m_s - (I - 1) (m_s without item i) = m_s + (I - 1) h_i / (1 - h_i) (y_si - m_s) with the share h_i of
the weight, moved to have the seed's score m_s as their plain mean (Cochran, *Sampling Techniques*, 1977, par. 6.4 and
6.17; 1 - h_i makes good that a heavy item draws m_s towards itself). Equal weights leave y as it is. "exp_mean" is
treated on the log scale, and its interval exponentiated (the delta method, without its symmetric approximation).

**Jackknife pseudo-values.** They vary as the score does (Tukey; Efron & Stein, *Annals of Statistics* 9(3), 1981: on
average no less), but their mean is the score corrected for its bias in 1 / n, which does not hold for MAUVE of few
texts. So they are shifted to have the score as their mean: they tell how the score varies, and not where it is. For
the other aggregates the shift is zero, so that no reader has to know the aggregate.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.stats.common_examples import Common, Scored, scored
from emobench.leaderboard.stats.random_effects import Array
from emobench.leaderboard.stats.replicates import no_replicates
from emobench.tasks.scores import Examples, only

UNKNOWN_SEEDS = "one value of a trained model, whose seeds are not known: import a file for each, with --seed"


@dataclass(frozen=True, kw_only=True)
class Series:
    """One metric of one row, by seed.

    `values` maps seed to score; the key None is that of a row without seeds (a `pretrained` model), whose one value
    counts for every seed of its rival. `examples` maps the same seeds to the values of sampling units, or is None where
    they are not available. `of_examples`: the score is one of several examples, so that their noise belongs to it.
    `reach` is the largest difference that an item can have: 1 of fractions, and 0 of pseudo-values, which are no values
    of items.
    """

    values: Mapping[int | None, float]
    examples: Mapping[int | None, Examples] | None
    higher_is_better: bool | None
    log_scale: bool
    flags: tuple[str, ...] = ()
    of_examples: bool = False
    no_replicates: str | None = None
    """Why no verdict may rest on these values: the seeds are no replicates, or many examples are missing."""
    reach: float = math.inf
    data: str = ""
    """The digest of the texts that the task is named after, if it is known: WikiText-2 and 103 have one test text."""
    averaged: Mapping[int | None, Array] | None = None
    """Linearised values that are means over the seeds of a base; `examples` then have the names and the weights."""

    @functools.cached_property
    def linearised(self) -> Mapping[int | None, Array]:
        """Seed -> (I,) linearised values in the order of the sorted ids, computed once for all comparisons."""
        if self.averaged is not None:
            return self.averaged
        return {
            seed: linearise(examples, sorted(examples), self.centre(seed))
            for seed, examples in (self.examples or {}).items()
        }

    @functools.cached_property
    def scored(self) -> Mapping[int | None, Scored]:
        """Seed -> the examples that its score is made of."""
        return {seed: scored(examples) for seed, examples in (self.examples or {}).items()}

    def value(self, seed: int | None) -> float:
        return self.values[self._key(seed)]

    def examples_of(self, seed: int | None) -> Examples | None:
        """Return a seed's examples, or None where they are not available."""
        examples = self.examples or {}
        return examples.get(seed, examples.get(None))

    def linearised_values(self, seeds: Sequence[int | None]) -> Array:
        """Return (S, I) linearised values."""
        return np.stack([self.linearised[self._key(seed)] for seed in seeds])

    def centre(self, seed: int | None) -> float:
        """Return a seed's score on the scale of its examples."""
        return math.log(self.value(seed)) if self.log_scale else self.value(seed)

    def scored_by(self, seeds: Sequence[int | None]) -> list[Scored]:
        """Return each seed's examples; nothing where those of a seed are not available."""
        runs = self.scored
        known = [key for seed in seeds if (key := seed if seed in runs else None) in runs]
        return [runs[key] for key in known] if len(known) == len(seeds) else []

    def only(self, common: Common, seeds: Sequence[int | None]) -> Series:
        """Return this series of some seeds, with the scores that the common examples give, in the common units.

        A score that is no mean of its examples (of pseudo-values) moves as their mean does.
        """
        if common.complete and common.units is None:
            return self
        values, examples = {}, {}
        for key in dict.fromkeys(map(self._key, seeds)):
            given = (self.examples or {})[key]
            examples[key] = only(given, common.ids, common.units)
            before, centre = weighted_mean(given), weighted_mean(examples[key])
            if not math.isclose(before, self.centre(key), rel_tol=1e-9, abs_tol=1e-12):
                centre += self.centre(key) - before
            values[key] = math.exp(min(centre, 709.0)) if self.log_scale else centre
        return replace(self, values=values, examples=examples)

    def _key(self, seed: int | None) -> int | None:
        return None if None in self.values else seed

    @classmethod
    def of(cls, summary: MetricSummary, seeds: Sequence[int], examples: Sequence[Examples] | None) -> Series:
        """Take a summary and, in the same order, its seeds and per-example values; no seeds: a row without training."""
        keys: list[int | None] = list(seeds) or [None]
        return cls(
            values=dict(zip(keys, summary.values, strict=True)),
            examples=None if examples is None else dict(zip(keys, examples, strict=True)),
            higher_is_better=summary.higher_is_better,
            log_scale=summary.unit == "perplexity" and (not examples or is_log(examples[0], summary.values[0])),
            flags=summary.flags,
            of_examples=bool(examples) or summary.n != 1,
            reach=_reach(summary, examples or ()),
        )

    @classmethod
    def of_entry(cls, entry: Entry, metric: str, runs: Sequence[Mapping[str, Examples]] | None) -> Series | None:
        """Take a metric of an entry, with its runs' per-example results (by metric) if they are available.

        None where the entry lacks the metric, or holds a mean without its seeds' values.
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
        examples = [run[metric] for run in runs or () if metric in run and not _of_blocks(metric, summary)]
        found = cls.of(summary, seeds, examples if len(examples) == len(summary.values) else None)
        unknown = single and entry.kind == "imported" and not entry.untrained
        data = entry.provenance.data.get(f"{metric.partition('/')[0]}.test", "").partition(" ")[0]
        return replace(found, data=data, no_replicates=UNKNOWN_SEEDS if unknown else no_replicates(entry, metric))


def _reach(summary: MetricSummary, examples: Sequence[Examples]) -> float:
    pairs = list(zip(examples, summary.values, strict=False))
    means = all(math.isclose(weighted_mean(e), value, rel_tol=1e-3, abs_tol=1e-6) for e, value in pairs)
    if not means and not all(is_log(e, value) for e, value in pairs):
        return 0.0
    return 1.0 if summary.unit == "fraction" else math.inf


def mean(values: Sequence[float], *, log: bool) -> float:
    """Return the arithmetic mean, or the geometric one (of perplexities) where `log`."""
    return math.exp(fmean(map(math.log, values))) if log else fmean(values)


def _of_blocks(metric: str, summary: MetricSummary) -> bool:
    """Return whether examples may be neighbouring blocks of one text, as they were before entries had units."""
    return summary.units is None and metric.endswith(("/ppl_test", "/entropy"))


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
