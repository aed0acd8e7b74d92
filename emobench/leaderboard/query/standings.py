"""Each comparable group of a board: its rows in order, the best of each metric, ranks, differences from a baseline.

Terminal, Markdown and JSON all show this, and nothing computes it again.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from emobench.core.errors import UnknownNameError
from emobench.leaderboard.comparable import groups, older_code
from emobench.leaderboard.entry import Entries, Entry
from emobench.leaderboard.labels import MEAN, clean, is_row, named, wanted
from emobench.leaderboard.run_files import ExamplesOf, RunExamples
from emobench.leaderboard.stats.classical import ALPHA, MIN_SEEDS, SMALL_N_FLAG, holm
from emobench.leaderboard.stats.compare import Contrast, PairContrasts, kinds_of, series_reader
from emobench.leaderboard.stats.series import Series, mean
from emobench.tasks.families import PRIMARY


@dataclass(frozen=True, kw_only=True)
class View:
    """`metrics` are patterns (see `wanted`), `sort` a metric, `baseline` an objective.

    `own` holds the ids of entries that stand first.
    """

    metrics: tuple[str, ...] = ()
    sort: str | None = None
    baseline: str | None = None
    intervals: bool = False
    own: frozenset[str] = frozenset()

    def sorted_by(self, metrics: Iterable[str]) -> tuple[str, ...]:
        """Return which of a group's metrics `sort` means: of those that it names, the requested ones if any is."""
        columns = named(self.sort, metrics) if self.sort else ()
        return tuple(metric for metric in columns if wanted(metric, self.metrics)) or columns

    def shown(self, metrics: Sequence[str], group: Entries) -> list[str]:
        """Return which of a group's metrics to show: the requested ones, and those that the rows are sorted by.

        Where none is requested, all but the secondary ones are.
        """
        order = self.sorted_by(metrics)
        hidden = set()
        for entry in group:
            for metric, summary in entry.metrics.items():
                if summary.secondary and not self.metrics:
                    hidden.add(metric)
        return [m for m in metrics if m in order or (m not in hidden and wanted(m, self.metrics))]


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """Who is where on `columns`: the metric `name` of several tasks, or one metric of one task.

    `means` holds each complete row's means over tasks, one for each seed, of perplexities the geometric ones; it is
    empty where there is one task. Rows that are tied share a place. `unranked` says why a row has no place, and
    `remark` why none has.
    """

    name: str
    columns: tuple[str, ...]
    means: Mapping[str, tuple[float, ...]]
    unranked: Mapping[str, str]
    remark: str | None
    places: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Standings:
    """One comparable group. `older` holds the ids of rows of older code, and `baseline` a row, or why there is none.

    `metrics` are those to show; `absent` maps those that no row has to a reason, and `untested` those for which rows
    cannot be distinguished, whatever their values. `best` has "mean/<metric>", too, where a mean over tasks is shown.
    `differences` maps an id to its contrasts with the baseline, by metric, and `tested` are all contrasts that a mark
    rests on.
    """

    rows: tuple[Entry, ...]
    older: frozenset[str]
    metrics: tuple[str, ...]
    absent: Mapping[str, str] = field(default_factory=dict)
    best: Mapping[str, str | None] = field(default_factory=dict)
    untested: Mapping[str, str] = field(default_factory=dict)
    ranking: Ranking | None = None
    baseline: Entry | str | None = None
    differences: Mapping[str, Mapping[str, Contrast]] = field(default_factory=dict)
    tested: tuple[Contrast, ...] = ()
    ties: tuple[Contrast, ...] = ()
    """By the primary endpoint, of rows that share the first place, or have none."""


def standings(entries: Entries, examples_of: ExamplesOf | None = None, view: View | None = None) -> list[Standings]:
    """Return the standings of each group of comparable entries, in the order given.

    Per-example results are read only where they can decide something: for rows with rivals and enough seeds.
    Raises UnknownNameError for a `--sort` metric or a `--baseline` that no group has.
    """
    view = view or View()
    split = groups(entries)
    metrics = set(itertools.chain.from_iterable(map(group_metrics, split)))
    if split and view.sort and not named(view.sort, metrics):
        if "/" not in view.sort:
            metrics = {metric.split("/", 1)[1] for metric in metrics}
        raise UnknownNameError("metric to sort by", view.sort, set(map(clean, metrics)))
    if entries and view.baseline and not any(_is_meant(view.baseline, entry) for entry in entries):
        objectives = {clean(entry.objective.label) for entry in entries}
        raise UnknownNameError("objective to be the baseline", view.baseline, objectives)
    return [_standings(group, examples_of, view) for group in split]


def group_metrics(group: Entries) -> list[str]:
    """Return the metrics of the trained rows, in the fullest row's order; a `pretrained` row may have more."""
    rows = [entry for entry in group if not entry.untrained] or group
    metrics = {}
    for entry in sorted(rows, key=lambda entry: -len(entry.metrics)):
        metrics |= dict.fromkeys((*entry.metrics, *entry.missing))
    return list(metrics)


def _standings(group: Entries, examples_of: ExamplesOf | None, view: View) -> Standings:
    older = older_code(group, view.own)
    current = [entry for entry in group if entry.id not in older]
    metrics = group_metrics(current)
    compared = group if view.baseline else current
    # Rows of too few seeds are undetermined with examples too.
    tested = {entry.id for entry in compared if entry.untrained or len(entry.seeds) >= MIN_SEEDS}

    def of_tested(entry: Entry) -> Sequence[RunExamples] | None:
        return examples_of(entry) if examples_of and len(tested) > 1 and entry.id in tested else None

    pairs = PairContrasts(series_reader(of_tested))
    ranking = _ranking(current, metrics, pairs, view)
    columns, absent = {}, {}
    for metric in view.shown(metrics, group):
        if any(metric in entry.metrics for entry in group):
            columns[metric] = metric
        else:
            reasons = filter(None, [entry.missing.get(metric) for entry in group])
            absent[metric] = next(reasons, "not measured")
    shown = tuple(columns)
    if ranking and ranking.means:
        columns[MEAN] = f"{MEAN}/{ranking.name}"
    best, untested = {}, {}
    for metric in columns.values():
        if _is_small(current, metric):
            best[metric], why = None, "too few examples"
        else:
            best[metric], why = pairs.best(current, metric)
        if why:
            untested[metric] = why
    baseline = _baseline(current, view.baseline) if view.baseline else None
    differences = {}
    for entry in group:
        if isinstance(baseline, Entry) and entry.id != baseline.id:
            differences[entry.id] = {}
            for name, metric in columns.items():
                contrast = pairs(entry, baseline, metric)
                if contrast is not None:
                    differences[entry.id][name] = contrast
    # Older code last, and first the baseline, then the reader's own rows; within these as requested, else by what they
    # are ranked by, else `pretrained` and the oldest first.
    rows = sorted(group, key=lambda e: (not e.untrained, e.provenance.created, e.objective.label))
    order = view.sorted_by(group_metrics(group))
    if ranking and (ranking.name == view.sort or (ranking.places and not view.sort)):
        order = ranking.columns
    if order:
        rows.sort(key=lambda e: _badness(e, order))
    rows.sort(key=lambda e: (e.id in older, e != baseline, e.id not in view.own))
    places = ranking.places if ranking else {}
    ties = {}
    for contrast in pairs.made.values():
        pair = frozenset((contrast.candidate, contrast.baseline))
        if contrast.family == PRIMARY and contrast.verdict == "tied" and all(places.get(key, 1) == 1 for key in pair):
            ties[pair] = contrast
    return Standings(
        rows=tuple(rows),
        older=older,
        metrics=shown,
        absent=absent,
        best=best,
        untested=untested,
        ranking=ranking,
        baseline=baseline,
        differences=differences,
        tested=tuple(contrast for contrast in pairs.made.values() if contrast.p is not None),
        ties=tuple(ties.values()),
    )


def _is_small(group: Entries, metric: str) -> bool:
    """Return whether a row has too few examples of a metric."""
    of_metric = [entry.metrics[metric] for entry in group if metric in entry.metrics]
    return any(SMALL_N_FLAG in summary.flags for summary in of_metric)


def _is_meant(text: str, entry: Entry) -> bool:
    return is_row(text, entry.id, entry.objective.name, entry.objective.label)


def _baseline(group: Entries, text: str) -> Entry | str:
    """Return the row that `--baseline` means among a group's rows, or why there is none."""
    meant = [entry for entry in group if _is_meant(text, entry)]
    if not meant:
        return f"no objective here is {text}"
    if len(meant) > 1:
        labels = [f"{entry.objective.label} [{entry.id[:6]}]" for entry in meant]
        return f"{text} means {len(meant)} objectives here ({', '.join(labels)})"
    return meant[0]


def _badness(entry: Entry, columns: Sequence[str]) -> float:
    """Return a number that is lower for better rows (for lower ones, if neither side is), and highest without a value.

    The mean over tasks is that of `Ranking`: of logarithms for perplexities.
    """
    values = []
    for metric in columns:
        if metric not in entry.metrics:
            return math.inf
        summary = entry.metrics[metric]
        value = math.log(summary.mean) if summary.unit == "perplexity" else summary.mean
        values.append(-value if summary.higher_is_better else value)
    return fmean(values)


def _ranking(group: Entries, metrics: Sequence[str], pairs: PairContrasts, view: View) -> Ranking | None:
    """Rank the rows of a group, of which `metrics` are all metrics; None if there is nothing to rank by.

    The place of a row is 1 + the number of rows that are better beyond noise: two-sided 5 %, by the p of each pair's
    comparison, which is adjusted for the metric's family (the primary endpoint's is not), and Holm over all pairs. A
    row that lacks a task, has fewer than 3 seeds, or cannot be tested against the others has no place.
    """
    columns = _ranked_by(group, metrics, view)
    if columns is None:
        return None
    name = columns[0]
    if len(columns) > 1:
        name = name.split("/", 1)[1]
    ranked = {}
    means = {}
    unranked = {}
    in_families = True
    for entry in group:
        missing, rows = [], []
        for metric in columns:
            if row := pairs.series(entry, metric):
                rows.append(row)
            if metric not in entry.metrics:
                missing.append(metric)
            elif metric not in entry.families:
                in_families = False
        complete = len(rows) == len(columns)
        if complete and len(columns) > 1:
            means[entry.id] = _means(rows)
        if missing:
            unranked[entry.id] = f"not ranked: {missing[0]} is missing"
        elif not entry.untrained and len(entry.seeds) < MIN_SEEDS:
            unranked[entry.id] = f"not ranked: {len(entry.seeds)} of {MIN_SEEDS} seeds"
        elif complete:
            ranked[entry.id] = entry
    remark = None
    if any(_is_small(group, metric) for metric in columns):
        remark = "too few examples for ranks"
    elif len(group) < 2:
        remark = "one objective"
    elif not in_families:
        remark = "it describes, and decides nothing"
    elif len(ranked) < 2:
        remark = f"fewer than 2 objectives with all tasks and {MIN_SEEDS} seeds"
    plain = Ranking(name=name, columns=columns, means=means, unranked=unranked, remark=remark)
    if remark:
        return plain
    tests = {}
    undetermined = {}
    for a, b in itertools.combinations(ranked, 2):
        test = pairs(ranked[a], ranked[b], name if len(columns) == 1 else f"{MEAN}/{name}")
        if test is not None and (test.p_holm is not None or test.verdict == "tied"):
            tests[a, b] = test
        else:
            undetermined[a, b] = (test and test.why) or "it cannot be compared with another row"
    # Rows of the most undetermined pairs go first, so that a row without examples costs no other row its place.
    reasons = []
    while undetermined:
        counts = Counter(itertools.chain.from_iterable(undetermined))
        # Of equals the later one: a trained row is before a `pretrained` one in a group.
        worst = max(reversed(counts), key=lambda key: counts[key])
        for pair in [pair for pair in undetermined if worst in pair]:
            reasons.append(undetermined.pop(pair))
            unranked.setdefault(worst, f"not ranked: {reasons[-1]}")
    tests = {pair: test for pair, test in tests.items() if unranked.keys().isdisjoint(pair)}
    if not tests:
        return replace(plain, remark=reasons[0])
    places = {key: 1 for key in ranked if key not in unranked}
    ps = []
    for test in tests.values():
        ps.append(1.0 if test.p_holm is None else test.p_holm)  # equal rows have no test
    for ((a, b), test), p in zip(tests.items(), holm(ps), strict=True):
        if p <= ALPHA:
            places[b if (test.effect > 0) == bool(test.higher_is_better) else a] += 1
    return replace(plain, places=places)


def _means(rows: Sequence[Series]) -> tuple[float, ...]:
    """Return the mean over tasks for each seed that all of them have."""
    log = all(row.log_scale for row in rows)
    means = []
    for seed in rows[0].values:
        values = [row.values[seed] for row in rows if seed in row.values]
        if len(values) == len(rows):
            means.append(mean(values, log=log))
    return tuple(means)


def _ranked_by(group: Entries, metrics: Sequence[str], view: View) -> tuple[str, ...] | None:
    """Return the columns to rank by: `--sort`'s metric where it can be, else the primary endpoint's.

    Without either, it is the metric that most tasks share.
    """
    shown = view.shown(metrics, group)
    aggregates = set()
    for entry in group:
        for metric, summary in entry.metrics.items():
            if summary.of_tasks:
                aggregates.add(metric)
    single = [metric for metric in metrics if metric not in aggregates]
    shared = {}
    for name in dict.fromkeys(metric.split("/", 1)[1] for metric in single):
        columns = named(name, single)
        # A mean over the tasks that a filter happens to keep is no mean over the suite's.
        if len(columns) > 1 and set(shown).issuperset(columns) and _has_one_direction(group, columns):
            shared[name] = columns
    primary = {entry.primary.partition("/")[2] for entry in group if entry.primary}
    for name in (view.sort, *primary):
        if name in shared:
            return shared[name]
    if shared:
        return max(shared.values(), key=len)
    columns = view.sorted_by(metrics)
    return columns if len(columns) == 1 and _has_one_direction(group, columns) else None


def _has_one_direction(group: Entries, columns: Sequence[str]) -> bool:
    """Return whether the metrics have one unit, and one better direction."""
    kinds = kinds_of(group, columns)
    return len(kinds) == 1 and kinds.pop()[1] is not None
