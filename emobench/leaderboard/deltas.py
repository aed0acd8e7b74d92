"""Every row's difference from the baseline row of its own comparable group."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import is_row
from emobench.leaderboard.ranks import Ranking, SeriesOf, compare_rows

if TYPE_CHECKING:
    from emobench.leaderboard.statistics import Difference

MEAN = "mean"
"""Stands for the mean over tasks among the metrics of a row's differences."""


@dataclass(frozen=True, kw_only=True)
class Delta:
    """A row minus the baseline, in the metric's unit, or log(row / baseline) for perplexities.

    `beyond_noise` is None where it is undetermined, and `why` says why; then there is no interval and no p either.
    `better` is None where the metric has no better direction.
    """

    effect: float
    log_scale: bool
    better: bool | None
    ci95: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    beyond_noise: bool | None = None
    why: str | None = None


def baseline_of(group: Sequence[Entry], text: str) -> Entry | str:
    """Return the row that `--baseline` means among a group's rows, or why there is none."""
    meant = [entry for entry in group if is_row(text, entry.id, entry.objective.name, entry.objective.label)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        return f"no row here is {text}"
    shown = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in meant[:3])
    return f"{text} means {len(meant)} rows here ({shown}{', ...' if len(meant) > 3 else ''})"


def deltas(
    entry: Entry, baseline: Entry, metrics: Sequence[str], series: SeriesOf, ranking: Ranking | None
) -> dict[str, Delta]:
    """Return metric -> the difference of an entry from the baseline, where both have the metric.

    Where a mean over tasks is shown, it is compared too, under MEAN. Tests are those of `statistics`, with Holm over
    the differences of this row; a metric flagged small_n is not tested.
    """
    from emobench.leaderboard.statistics import ALPHA, holm

    shared = [m for m in metrics if m in entry.metrics and m in baseline.metrics]
    tests = {m: _test([m], entry, baseline, series) for m in shared}
    if ranking and entry.id in ranking.means and baseline.id in ranking.means:
        tests[MEAN] = _test(ranking.columns, entry, baseline, series)
    known = {m: test for m, test in tests.items() if not isinstance(test, str)}
    adjusted = dict(zip(known, holm([test.p for test in known.values()]), strict=True))
    found = {}
    for metric, test in tests.items():
        summary = entry.metrics[ranking.columns[0] if ranking and metric == MEAN else metric]
        if isinstance(test, str):
            effect, log = _effect(metric, entry, baseline, ranking)
            found[metric] = Delta(effect=effect, log_scale=log, better=_better(effect, summary), why=test)
            continue
        p = adjusted[metric]
        found[metric] = Delta(
            effect=test.effect,
            log_scale=test.log_scale,
            better=_better(test.effect, summary),
            ci95=test.ci95,
            p=test.p,
            p_holm=p,
            beyond_noise=p <= ALPHA,
        )
    return found


def _better(effect: float, summary: MetricSummary) -> bool | None:
    return None if summary.higher_is_better is None or not effect else (effect > 0) == summary.higher_is_better


def _test(columns: Sequence[str], entry: Entry, baseline: Entry, series: SeriesOf) -> Difference | str:
    """Return the difference, or why it cannot be tested."""
    from emobench.leaderboard.statistics import UNRANKED_FLAG

    rows = [[series[m][e.id] for m in columns if e.id in series.get(m, {})] for e in (entry, baseline)]
    if any(len(row) < len(columns) for row in rows):
        return "the values of single seeds are not known"
    if any(UNRANKED_FLAG in one.flags for row in rows for one in row):
        return "too few examples"
    return compare_rows(*rows)


def _effect(metric: str, entry: Entry, baseline: Entry, ranking: Ranking | None) -> tuple[float, bool]:
    """Return the plain difference, and whether it is on the log scale."""
    if ranking and metric == MEAN:
        log = entry.metrics[ranking.columns[0]].unit == "perplexity"
        values: tuple[Sequence[float], ...] = (ranking.means[entry.id], ranking.means[baseline.id])
    else:
        summaries: Mapping[str, MetricSummary] = {e.id: e.metrics[metric] for e in (entry, baseline)}
        log = summaries[entry.id].unit == "perplexity"
        values = tuple(summaries[e.id].values or (summaries[e.id].mean,) for e in (entry, baseline))
    left, right = (fmean(map(math.log, side)) if log else fmean(side) for side in values)
    return left - right, log
