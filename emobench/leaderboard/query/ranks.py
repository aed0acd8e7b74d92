"""Places within a comparable group, by the mean over tasks of one metric; rows that are tied share a place."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, stdev

from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN
from emobench.leaderboard.query.view import View, named
from emobench.leaderboard.stats.classical import ALPHA, MIN_SEEDS, SMALL_N_FLAG, holm
from emobench.leaderboard.stats.compare import Contrast, PairContrasts, SeriesByMetric
from emobench.leaderboard.stats.series import Series, mean


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Who is where on `columns`: the metric `name` of several tasks, or one metric of one task.

    `family` is that of the tests, and `tests` the number of pairs.

    `means` holds each complete row's means over tasks, one for each seed, of perplexities the geometric ones; it is
    empty where there is one task. `unranked` says why a row has no place, and `remark` why none has.
    """

    name: str
    columns: tuple[str, ...]
    family: str | None = None
    means: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    places: Mapping[str, int] = field(default_factory=dict)
    unranked: Mapping[str, str] = field(default_factory=dict)
    tests: int = 0
    remark: str | None = None


def ranking(
    group: Sequence[Entry], metrics: Sequence[str], series: SeriesByMetric, pairs: PairContrasts, view: View
) -> Ranking | None:
    """Rank the rows of a group, of which `metrics` are all metrics; None where there is nothing to rank by.

    The place of a row is 1 + the number of rows that are better beyond noise: two-sided 5 %, by the p of each pair's
    comparison, which is adjusted for the metric's family (the primary endpoint's is not), and Holm over all pairs. A
    row that lacks a task, has fewer than 3 seeds, or cannot be tested against the others has no place.
    """
    chosen = _ranked_by(group, metrics, view)
    if chosen is None:
        return None
    name, columns = chosen
    unranked = {entry.id: why for entry in group if (why := _why_unranked(entry, columns))}
    complete = {e.id: [series[m][e.id] for m in columns] for e in group if all(e.id in series[m] for m in columns)}
    means = {key: _means(rows) for key, rows in complete.items()} if len(columns) > 1 else {}
    ranked = {entry.id: entry for entry in group if entry.id in complete and entry.id not in unranked}
    remark = _remark(group, columns, ranked)
    if remark:
        return Ranking(name=name, columns=columns, means=means, unranked=unranked, remark=remark)
    row = columns[0] if len(columns) == 1 else f"{MEAN}/{name}"
    tests = {(a, b): pairs(ranked[a], ranked[b], row) for a, b in itertools.combinations(ranked, 2)}
    untested = _untested({pair: why for pair, test in tests.items() if (why := _why_untested(test))})
    unranked |= {key: f"not ranked: {why}" for key, why in untested.items()}
    kept = {pair: test for pair, test in tests.items() if test is not None and not untested.keys() & pair}
    found = Ranking(name=name, columns=columns, means=means, unranked=unranked)
    if not kept:
        return replace(found, remark=next(iter(untested.values())))
    places = _places([key for key in ranked if key not in untested], kept)
    return replace(found, family=next(iter(kept.values())).family, places=places, tests=len(kept))


def _ranked_by(group: Sequence[Entry], metrics: Sequence[str], view: View) -> tuple[str, tuple[str, ...]] | None:
    """Return the metric's name and its columns: `--sort`'s where it can be, else the primary endpoint's.

    Without either, it is the metric that most tasks share.
    """
    shared: dict[str, tuple[str, ...]] = {}
    shown = view.shown(metrics, group)
    single = [m for m in metrics if not any(m in e.metrics and e.metrics[m].of_tasks for e in group)]
    for name in dict.fromkeys(metric.split("/", 1)[1] for metric in single):
        columns = named(name, single)
        kinds = {(m.unit, m.higher_is_better) for e in group for c in columns if (m := e.metrics.get(c))}
        # A mean over the tasks that a filter happens to keep is no mean over the suite's.
        if len(columns) > 1 and len(kinds) == 1 and all(c in shown for c in columns) and _has_direction(group, columns):
            shared[name] = columns
    primary = {entry.primary.partition("/")[2] for entry in group if entry.primary}
    for name in (view.sort, *primary):
        if name in shared:
            return name, shared[name]
    if shared:
        return max(shared.items(), key=lambda item: len(item[1]))
    columns = view.sorted_by(metrics)
    return (columns[0], columns) if len(columns) == 1 and _has_direction(group, columns) else None


def _has_direction(group: Sequence[Entry], columns: Sequence[str]) -> bool:
    better = (e.metrics[c].higher_is_better for e in group for c in columns if c in e.metrics)
    return next(better, None) is not None


def _why_unranked(entry: Entry, columns: Sequence[str]) -> str | None:
    missing = [metric for metric in columns if metric not in entry.metrics]
    if missing:
        return f"not ranked: {missing[0]} is missing"
    if not entry.untrained and len(entry.seeds) < MIN_SEEDS:
        return f"not ranked: {len(entry.seeds)} of {MIN_SEEDS} seeds"
    return None


def _remark(group: Sequence[Entry], columns: Sequence[str], ranked: Mapping[str, object]) -> str | None:
    if any(SMALL_N_FLAG in e.metrics[c].flags for e in group for c in columns if c in e.metrics):
        return "too few examples for ranks"
    if len(group) < 2:
        return "one objective"
    if any(c not in e.families for e in group for c in columns if c in e.metrics):
        return "it describes, and decides nothing"
    return None if len(ranked) > 1 else f"fewer than 2 objectives with all tasks and {MIN_SEEDS} seeds"


def _means(rows: Sequence[Series]) -> tuple[float, ...]:
    log = all(row.log_scale for row in rows)
    seeds = [seed for seed in rows[0].values if all(seed in row.values for row in rows)]
    by_seed = [[row.values[seed] for row in rows] for seed in seeds]
    return tuple(mean(values, log=log) for values in by_seed)


def _untested(undetermined: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the rows that have to go so that every pair of the others is determined, each with a reason.

    Those of the most undetermined pairs go first, so that one row without examples costs no other row its place.
    """
    left, gone = dict(undetermined), {}
    while left:
        counts = Counter(itertools.chain.from_iterable(left))
        # Of equals the later one: a trained row is before a `pretrained` one in a group.
        worst = max(reversed(counts), key=lambda key: counts[key])
        gone[worst] = next(why for pair, why in left.items() if worst in pair)
        left = {pair: why for pair, why in left.items() if worst not in pair}
    return gone


def _why_untested(contrast: Contrast | None) -> str | None:
    if contrast is not None and (contrast.p_holm is not None or contrast.verdict == "tied"):
        return None
    return (contrast and contrast.why) or "it cannot be compared with another row"


def _places(ranked: Sequence[str], tests: Mapping[tuple[str, str], Contrast]) -> dict[str, int]:
    places = dict.fromkeys(ranked, 1)
    ps = [1.0 if test.p_holm is None else test.p_holm for test in tests.values()]  # equal rows have no test
    for ((a, b), test), p in zip(tests.items(), holm(ps), strict=True):
        if p <= ALPHA:
            places[b if (test.effect > 0) == bool(test.higher_is_better) else a] += 1
    return places


def mean_summary(like: MetricSummary, values: Sequence[float]) -> MetricSummary:
    """Return the summary of each seed's mean over tasks; no interval of it is recorded."""
    spread = stdev(values) if len(values) > 1 else None
    plain = replace(like, n=None, units=None, ci95=None, ci95_of=None, flags=(), components={})
    return replace(plain, mean=fmean(values), std=spread, values=tuple(values))
