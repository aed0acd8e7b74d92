"""Several pre-trained bases as a level of replication: does a difference hold for another base?

Entries whose models the harness made alike, but for the seed of the pre-training, are replicates
(`entry.Pretraining`). An objective's entries of several bases become one row, whose values are the means over the
training seeds of each base, and which is paired with its rival's base by base. So the base is the unit that is sampled,
crossed with the test items: more seeds of a base make its mean less noisy, and add no unit.
"""

from __future__ import annotations

import hashlib
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from emobench.core.errors import ConfigError, MetricError
from emobench.core.settings import content_hash, to_plain
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import Comparison, Contrast, SeriesOf, SeriesReader, compare, title
from emobench.leaderboard.stats.random_effects import Array
from emobench.leaderboard.stats.series import Common, Series, centre_of, common_examples, effective, mean
from emobench.tasks.scores import Examples

Bases = Mapping[str, Entry]
"""The revision of a base -> the newest entry of one objective that starts from it."""

IN_ONE_BASE = "in one base, "
"""Begins a reason that is of the seeds of one base, and not of the bases."""
HOW = 'make some with `emobench run --model "tiny-oracle(seed=1)"`, for three seeds or more'


def compare_across_bases(
    chosen: Sequence[Sequence[Entry]],
    baseline: Sequence[Entry] | None,
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> list[Comparison]:
    """Compare what a reader chose with the last choice or with `baseline`, over the bases that both have entries of.

    Raises ConfigError where nothing that was chosen starts from replicate bases that both sides have.
    """
    of_baseline = _rows(chosen[-1] if baseline is None else baseline)
    ids: set[str] = set()
    for row in of_baseline.values():
        ids |= {entry.id for entry in row.values()}
    named = list(itertools.chain.from_iterable(chosen))
    others = _rows(entry for entry in named if entry.id not in ids)
    series, made = SeriesReader(examples_of), []
    for (setting, _), theirs in of_baseline.items():
        for (other, _), ours in others.items():
            if setting != other:
                continue
            common = [base for base in theirs if base in ours and not differences(ours[base], theirs[base])]
            if common:
                common.sort()
                sides = [ours[base] for base in common], [theirs[base] for base in common]
                made.append(_compare(*sides, series=series, metrics=metrics))
    if not made:
        names = ", ".join(dict.fromkeys(map(title, named)))
        raise ConfigError(f"No base is common to the rows that were named ({names}): {HOW}.")
    return made


def _rows(entries: Iterable[Entry]) -> Mapping[tuple[str, str], Bases]:
    """Return the entries of made models by what rows that are compared share, and by what sets rows apart.

    Of two entries of one base the newest counts.
    """
    rows: dict[tuple[str, str], dict[str, Entry]] = {}
    for entry in sorted(entries, key=lambda e: (e.provenance.created, e.id)):
        if entry.model.pretraining is None:
            continue
        # Whether two entries of one base are comparable is asked base by base; here stands what no base may change.
        shared = content_hash([entry.model.pretraining.setting, str(entry.suite), dict(entry.protocols)])
        own = content_hash([entry.objective.label, entry.objective.source_sha256, to_plain(entry.recipe)])
        rows.setdefault((shared, own), {})[entry.model.revision or entry.model.source] = entry
    return rows


def _compare(
    ours: Sequence[Entry], theirs: Sequence[Entry], *, series: SeriesOf, metrics: Sequence[str] | None
) -> Comparison:
    """Compare two rows, given as their entries of the same bases in the same order."""
    row, rival = _pooled(ours), _pooled(theirs)
    members = {row.id: tuple(ours), rival.id: tuple(theirs)}
    of_bases = _BaseSeries(members, series)
    made = compare(rival, [row], metrics=metrics, series=of_bases)
    contrasts = tuple(of_bases.counted(_of_bases(contrast)) for contrast in made.contrasts)
    return replace(made, contrasts=contrasts, replicates="bases", members=members)


class _BaseSeries:
    """Makes the series of two rows over their bases, on the examples that every seed of every base has."""

    def __init__(self, members: Mapping[str, Sequence[Entry]], series: SeriesOf) -> None:
        self._members = members
        self._series = series
        self._common: dict[str, Common | str | None] = {}
        """Metric -> its common examples; why they are too few; None where a run has none."""

    def __call__(self, row: Entry, metric: str) -> Series | None:
        bases = self._of(row.id, metric)
        if bases is None:
            return None
        if metric not in self._common:
            self._common[metric] = self._common_examples(metric)
        common = self._common[metric]
        if isinstance(common, Common):
            return _over_bases([base.only(common, list(base.values)) for base in bases])
        without = _over_bases([replace(base, examples=None) for base in bases])
        return without if common is None else replace(without, no_replicates=common)

    def counted(self, contrast: Contrast) -> Contrast:
        """Return a contrast with the number of its examples, where a run lacks one."""
        name = contrast.metric.partition("/")[2]
        kept = total = 0
        for task in contrast.tasks:
            common = self._common.get(f"{task}/{name}")
            if isinstance(common, Common):
                kept += len(common.ids)
                total += common.total
        if contrast.items is None or kept == total:
            return contrast
        return replace(contrast, common_examples=kept, all_examples=total)

    def _of(self, row: str, metric: str) -> list[Series] | None:
        """Return a row's series of each base; None where one is missing."""
        bases = []
        for entry in self._members[row]:
            series = self._series(entry, metric)
            if series is None:
                return None
            bases.append(series)
        return bases

    def _common_examples(self, metric: str) -> Common | str | None:
        """Return the common examples of both rows, or why they are too few; None where a run has none."""
        sides = []
        for row in self._members:
            bases = self._of(row, metric) or []
            if not bases or any(one.examples is None for one in bases):
                return None
            sides.append(list(itertools.chain.from_iterable(base.scored.values() for base in bases)))
        try:
            return common_examples(*sides)
        except MetricError as error:
            return str(error)


def _of_bases(contrast: Contrast) -> Contrast:
    """Return a contrast that says bases where the test of its values says seeds."""
    test, why = contrast.test or "", contrast.why or ""
    test = test.replace("seed", "base")
    if not why.startswith(IN_ONE_BASE):
        why = why.replace("seed", "base")
    return replace(contrast, test=test or None, why=why.partition(", or as many other")[0] or None, within=())


def _pooled(entries: Sequence[Entry]) -> Entry:
    """Return one row for the entries of several bases, whose values and seeds are those of the bases, in order."""
    first = entries[0]
    assert first.model.pretraining is not None
    metrics = {}
    for metric in first.metrics:
        of_bases = [entry.metrics[metric] for entry in entries if metric in entry.metrics]
        if len(of_bases) == len(entries):
            metrics[metric] = _summary(of_bases)
    absent: set[str] = set()
    for entry in entries:
        absent |= {*entry.metrics, *entry.missing} - metrics.keys()
    ids = " ".join(entry.id for entry in entries)
    bases = "base" if len(entries) == 1 else "bases"
    name = f"{first.model.name.partition('(')[0]}, {len(entries)} {bases}"
    return replace(
        first,
        id=hashlib.sha256(ids.encode()).hexdigest()[:12],
        model=replace(first.model, name=name, source=first.model.pretraining.setting, revision=None),
        seeds=tuple(range(len(entries))),
        metrics=metrics,
        families={metric: family for metric, family in first.families.items() if metric in metrics},
        missing=dict.fromkeys(sorted(absent), "not measured on every base"),
        runs=(),
    )


def _summary(of_bases: Sequence[MetricSummary]) -> MetricSummary:
    log = of_bases[0].unit == "perplexity"
    values = [centre_of(summary, log=log) for summary in of_bases]
    flags = dict.fromkeys(itertools.chain.from_iterable(summary.flags for summary in of_bases))
    return replace(
        of_bases[0],
        mean=mean(values, log=False),
        std=statistics.stdev(values) if len(values) > 1 else None,
        values=tuple(values),
        ci95=None,
        ci95_of=None,
        ci95_missing="a row of several bases",
        flags=tuple(flags),
        components={},
    )


def _over_bases(rows: Sequence[Series]) -> Series:
    """Return the means over the seeds of each base, as one series by the place of the base.

    Rows that have examples have the same ones. A base's items are worth as many of equal weight as those of its seed
    with the fewest.
    """
    values: dict[int | None, float] = {}
    examples: dict[int | None, Examples] = {}
    averaged: dict[int | None, Array] = {}
    flags: dict[str, None] = {}
    no_replicates = None
    for place, row in enumerate(rows):
        values[place] = mean(list(row.values.values()), log=row.log_scale)
        if row.examples is not None:
            examples[place] = min(row.examples.values(), key=effective)
            averaged[place] = np.mean(list(row.linearised.values()), axis=0)
        flags |= dict.fromkeys(row.flags)
        if row.no_replicates and no_replicates is None:
            no_replicates = f"{IN_ONE_BASE}{row.no_replicates}"
    complete = len(examples) == len(rows)
    return replace(
        rows[0],
        values=values,
        examples=examples if complete else None,
        averaged=averaged if complete else None,
        flags=tuple(flags),
        of_examples=any(row.of_examples for row in rows),
        no_replicates=no_replicates,
        reach=min(row.reach for row in rows),
    )
