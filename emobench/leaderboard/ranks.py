"""Places within a comparable group, by the mean over tasks of one metric; rows that are tied share a place."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.view import View, named, wanted

if TYPE_CHECKING:
    from emobench.leaderboard.statistics import Series

SeriesOf = Mapping[str, Mapping[str, "Series"]]
"""Metric -> id of an entry -> its Series; without the entries that lack the metric."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Who is where on `columns`: the metric `name` of several tasks, or one metric of one task.

    `means` holds each complete row's means over tasks, one for each seed, of perplexities the geometric ones; it is
    empty where there is one task. `unranked` says why a row has no place, and `remark` why none has.
    """

    name: str
    columns: tuple[str, ...]
    means: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    unranked: Mapping[str, str] = field(default_factory=dict)
    tests: int = 0
    remark: str | None = None


def ranking(group: Sequence[Entry], metrics: Sequence[str], series: SeriesOf, view: View) -> Ranking | None:
    """Rank the rows of a group, of which `metrics` are all metrics; None where there is nothing to rank by.

    The place of a row is 1 + the number of rows that are better beyond noise: pairwise tests of the means over tasks
    (`statistics.difference_of_means`), two-sided 5 %, Holm over all pairs. A row that lacks a task or has fewer than
    3 seeds has no place.
    """
    found = _ranked_by(group, metrics, view)
    if found is None:
        return None
    name, columns = found
    unranked = {entry.id: why for entry in group if (why := _why_unranked(entry, columns))}
    complete = {e.id: [series[m][e.id] for m in columns] for e in group if all(e.id in series[m] for m in columns)}
    means = {key: _means(rows) for key, rows in complete.items()} if len(columns) > 1 else {}
    ranked = {key: rows for key, rows in complete.items() if key not in unranked}
    remark = _remark(group, columns, ranked)
    if remark:
        return Ranking(name=name, columns=columns, means=means, remark=remark)
    places, tests, remark = _places(ranked, {e.id: e.objective.label for e in group})
    return Ranking(
        name=name, columns=columns, means=means, places=places, unranked=unranked, tests=tests, remark=remark
    )


def _ranked_by(group: Sequence[Entry], metrics: Sequence[str], view: View) -> tuple[str, tuple[str, ...]] | None:
    """Return the metric's name and its columns: `--sort`'s where it can be, else the one that most tasks share."""
    shared: dict[str, tuple[str, ...]] = {}
    for metric in metrics:
        columns = named(metric.split("/", 1)[1], metrics)
        kinds = {(m.unit, m.higher_is_better) for e in group for c in columns if (m := e.metrics.get(c))}
        # A mean over the tasks that a filter happens to keep is no mean over the suite's.
        if len(columns) > 1 and len(kinds) == 1 and all(wanted(c, view.metrics) for c in columns):
            shared[metric.split("/", 1)[1]] = columns
    shared = {name: columns for name, columns in shared.items() if _direction(group, columns) is not None}
    if view.sort in shared:
        return view.sort, shared[view.sort]
    if shared:
        return max(shared.items(), key=lambda item: len(item[1]))
    columns = named(view.sort, metrics) if view.sort else ()
    return (columns[0], columns) if len(columns) == 1 and _direction(group, columns) is not None else None


def _direction(group: Sequence[Entry], columns: Sequence[str]) -> bool | None:
    return next((e.metrics[c].higher_is_better for e in group for c in columns if c in e.metrics), None)


def _why_unranked(entry: Entry, columns: Sequence[str]) -> str | None:
    from emobench.leaderboard.statistics import MIN_SEEDS

    missing = [metric for metric in columns if metric not in entry.metrics]
    if missing:
        return f"not ranked: {missing[0]} is missing"
    if not entry.untrained and len(entry.seeds) < MIN_SEEDS:
        return f"not ranked: {len(entry.seeds)} of {MIN_SEEDS} seeds"
    return None


def _remark(group: Sequence[Entry], columns: Sequence[str], ranked: Mapping[str, object]) -> str | None:
    from emobench.leaderboard.statistics import MIN_SEEDS, UNRANKED_FLAG

    if any(UNRANKED_FLAG in e.metrics[c].flags for e in group for c in columns if c in e.metrics):
        return "too few examples for ranks"
    if len(group) < 2:
        return "one row"
    return None if len(ranked) > 1 else f"fewer than 2 rows with all tasks and {MIN_SEEDS} seeds"


def _means(rows: Sequence[Series]) -> tuple[float, ...]:
    log = all(row.log_scale for row in rows)
    seeds = [seed for seed in rows[0].values if all(seed in row.values for row in rows)]
    by_seed = [[row.values[seed] for row in rows] for seed in seeds]
    return tuple(math.exp(fmean(map(math.log, values))) if log else fmean(values) for values in by_seed)


def _places(
    ranked: Mapping[str, Sequence[Series]], labels: Mapping[str, str]
) -> tuple[dict[str, int], int, str | None]:
    """Return the places, the number of tests behind them, and why there are none where a pair is undetermined."""
    from emobench.leaderboard.statistics import ALPHA, difference_of_means, holm, undetermined

    # Models as they are have no seeds, so that two of them cannot be told apart.
    pairs = [
        (a, b) for a, b in itertools.combinations(ranked, 2) if not all(None in ranked[x][0].values for x in (a, b))
    ]
    found = [difference_of_means(ranked[a], ranked[b]) for a, b in pairs]
    for (a, b), test in zip(pairs, found, strict=True):
        if test is None:
            return {}, 0, f"{labels[a]} and {labels[b]}: {undetermined(ranked[a], ranked[b])}"
    tests = [test for test in found if test is not None]
    places = dict.fromkeys(ranked, 1)
    for (a, b), test, p in zip(pairs, tests, holm([test.p for test in tests]), strict=True):
        if p <= ALPHA:
            places[b if (test.effect > 0) == bool(ranked[a][0].higher_is_better) else a] += 1
    return places, len(tests), None
