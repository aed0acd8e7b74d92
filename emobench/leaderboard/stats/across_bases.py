"""Several pre-trained bases as a level of replication: does a difference hold for another base?

Entries whose models the harness made alike, but for the seed of the pre-training, are replicates
(`entry.Pretraining`). An objective's entries of several bases become one row, whose values are the means over the
training seeds of each base, and which is paired with its rival's base by base. So the base is the unit that is sampled,
crossed with the test items: more seeds of a base make its mean less noisy, and add no unit.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from emobench.core.errors import ConfigError, MetricError
from emobench.core.settings import content_hash, to_plain
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entries, Entry, MetricSummary
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import Comparison, Contrast, SeriesOf, compare, series_reader, title
from emobench.leaderboard.stats.series import (
    Common,
    Scored,
    Series,
    centre_of,
    common_examples,
    effective,
    mean,
    mean_summary,
)

Bases = Mapping[str, Entry]
"""The revision of a base -> the newest entry of one objective that starts from it."""

IN_ONE_BASE = "in one base, "
"""Begins a reason that is of the seeds of one base, and not of the bases."""
HOW = 'make some with `emobench run --model "tiny-oracle(seed=1)"`, for three seeds or more'


def compare_across_bases(
    chosen: Sequence[Entries],
    baseline: Entries | None,
    examples_of: ExamplesOf | None = None,
    *,
    metrics: Sequence[str] | None = None,
) -> list[Comparison]:
    """Compare what a reader chose with the last choice or with `baseline`, over the bases that both have entries of.

    Raises ConfigError if nothing that was chosen starts from replicate bases that both sides have.
    """
    bases = chosen[-1] if baseline is None else baseline
    of_baseline = _rows(bases)
    ids = {entry.id for entry in bases}
    named = list(itertools.chain.from_iterable(chosen))
    others = _rows(entry for entry in named if entry.id not in ids)
    series, made = series_reader(examples_of), []
    for (setting, _), theirs in of_baseline.items():
        for (other, _), ours in others.items():
            left, right = [], []
            for base in sorted(theirs.keys() & ours.keys()):
                if not differences(ours[base], theirs[base]):
                    left.append(ours[base])
                    right.append(theirs[base])
            if left and setting == other:
                made.append(_compare(left, right, series, metrics))
    if not made:
        names = ", ".join(dict.fromkeys(map(title, named)))
        raise ConfigError(f"These rows have no pre-trained model in common ({names}): {HOW}.")
    return made


def _rows(entries: Iterable[Entry]) -> Mapping[tuple[str, str], Bases]:
    """Return the entries of models that the harness trained, by shared and by own facts of a row.

    Of two entries of one base the newest counts.
    """
    rows = {}
    for entry in sorted(entries, key=lambda e: (e.provenance.created, e.id)):
        if entry.model.pretraining is None:
            continue
        # Whether two entries of one base are comparable is asked base by base; here stands what no base may change.
        shared = content_hash([entry.model.pretraining.setting, str(entry.suite), dict(entry.protocols)])
        own = content_hash([entry.objective.label, entry.objective.source_sha256, to_plain(entry.recipe)])
        rows.setdefault((shared, own), {})[entry.model.revision or entry.model.source] = entry
    return rows


def _compare(ours: Entries, theirs: Entries, series: SeriesOf, metrics: Sequence[str] | None) -> Comparison:
    """Compare two rows, given as their entries of the same bases in the same order."""
    row, rival = _pooled(ours), _pooled(theirs)
    members = {row.id: tuple(ours), rival.id: tuple(theirs)}
    made = {}
    common_of = {}
    for metric in row.metrics.keys() & rival.metrics.keys():
        left = list(filter(None, [series(entry, metric) for entry in ours]))
        right = list(filter(None, [series(entry, metric) for entry in theirs]))
        if len(left) + len(right) < len(ours) + len(theirs):
            continue
        common = why = None
        if all(base.examples is not None for base in (*left, *right)):
            try:
                common = common_of[metric] = common_examples(_scored(left), _scored(right))
            except MetricError as error:
                why = str(error)
        made[row.id, metric] = _over_bases(left, common, why)
        made[rival.id, metric] = _over_bases(right, common, why)
    comparison = compare(rival, [row], metrics=metrics, series=lambda entry, metric: made.get((entry.id, metric)))
    contrasts = tuple(_of_bases(contrast, common_of) for contrast in comparison.contrasts)
    return replace(comparison, contrasts=contrasts, replicates="bases", members=members)


def _scored(bases: Sequence[Series]) -> list[Scored]:
    return [run for base in bases for run in base.scored.values()]


def _of_bases(contrast: Contrast, common_of: Mapping[str, Common]) -> Contrast:
    """Return a contrast that says bases where its test says seeds, and counts the examples that a run lacks."""
    test, why = contrast.test or "", contrast.why or ""
    if not why.startswith(IN_ONE_BASE):
        why = why.replace("seed", "base")
    contrast = replace(contrast, test=test.replace("seed", "base") or None, why=why or None, within=())
    name = contrast.metric.partition("/")[2]
    kept = total = 0
    for task in contrast.tasks:
        if common := common_of.get(f"{task}/{name}"):
            kept += len(common.ids)
            total += common.total
    if contrast.items is None or kept == total:
        return contrast
    return replace(contrast, common_examples=kept, all_examples=total)


def _pooled(entries: Entries) -> Entry:
    """Return one row for the entries of several bases, whose values and seeds are those of the bases, in order."""
    first = entries[0]
    assert first.model.pretraining is not None
    names = set()
    for entry in entries:
        names.update(entry.metrics, entry.missing)
    metrics, families = {}, {}
    for metric in first.metrics:
        of_bases = [entry.metrics[metric] for entry in entries if metric in entry.metrics]
        if len(of_bases) == len(entries):
            metrics[metric] = _summary(of_bases)
            if metric in first.families:
                families[metric] = first.families[metric]
    ids = " ".join(entry.id for entry in entries)
    name = f"{first.model.name.partition('(')[0]}, {len(entries)} bases"
    model = replace(first.model, name=name, source=first.model.pretraining.setting, revision=None)
    missing = dict.fromkeys(sorted(names - metrics.keys()), "not measured on every base")
    return replace(
        first,
        id=hashlib.sha256(ids.encode()).hexdigest()[:12],
        model=model,
        seeds=tuple(range(len(entries))),
        metrics=metrics,
        families=families,
        missing=missing,
        runs=(),
    )


def _summary(of_bases: Sequence[MetricSummary]) -> MetricSummary:
    values, flags = [], []
    for summary in of_bases:
        values.append(centre_of(summary, log=summary.unit == "perplexity"))
        flags += summary.flags
    summary = mean_summary(of_bases[0], values)
    return replace(summary, ci95_missing="a row of several bases", flags=tuple(dict.fromkeys(flags)))


def _over_bases(bases: Sequence[Series], common: Common | None, why: str | None) -> Series:
    """Return the means over the seeds of each base, as one series by the place of the base.

    They are over the `common` examples of all runs; without any, `why` may say why no verdict rests on the values. A
    base's items are worth as many of equal weight as those of its seed with the fewest.
    """
    values = {}
    examples = {}
    averaged = {}
    for place, base in enumerate(bases):
        if common is not None:
            base = base.only(common)
            examples[place] = min((base.examples or {}).values(), key=effective)
            averaged[place] = np.mean(list(base.linearised.values()), axis=0)
        values[place] = mean(list(base.values.values()), log=base.log_scale)
        if base.no_replicates:
            why = why or f"{IN_ONE_BASE}{base.no_replicates}"
    of_examples = any(base.of_examples for base in bases)
    pooled = replace(
        bases[0],
        values=values,
        examples=examples or None,
        of_examples=of_examples,
        no_replicates=why,
        reach=min(base.reach for base in bases),
    )
    if examples:
        vars(pooled)["linearised"] = averaged
    return pooled
