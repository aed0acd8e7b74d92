"""What is known of each comparable group of a board: its rows in order, the best of each metric, places, differences.

Terminal, Markdown and JSON all show this, and nothing computes it again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from emobench.core.errors import UnknownNameError
from emobench.leaderboard.comparable import groups, older_code
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import MEAN, clean, is_row
from emobench.leaderboard.query.ranks import Ranking, ranking
from emobench.leaderboard.query.view import ORDERS, View, named
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.classical import MIN_SEEDS, SMALL_N_FLAG
from emobench.leaderboard.stats.compare import Contrast, PairContrasts, SeriesByMetric
from emobench.leaderboard.stats.series import Series


@dataclass(frozen=True, kw_only=True)
class Standings:
    """One comparable group. `older` holds the ids of rows of older code, and `baseline` a row, or why there is none.

    `metrics` are those to show; `absent` maps those that no row has to a reason, and `untested` those for which rows
    cannot be told apart, whatever their values. `best` has "mean/<metric>", too, where a mean over tasks is shown.
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


def standings(
    entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None
) -> list[Standings]:
    """Return the standings of each group of comparable entries, in the order given.

    Per-example results are read only where they can decide something: for rows with rivals and enough seeds.
    Raises UnknownNameError for a `--sort` metric or a `--baseline` that no group has.
    """
    view = view or View()
    split = groups(entries)
    _check(view, split)
    return [_standings(group, examples_of, view) for group in split]


def group_metrics(group: Sequence[Entry]) -> list[str]:
    """Return the metrics of the trained rows, in the fullest row's order; a `pretrained` row may have more."""
    rows = sorted([e for e in group if not e.untrained] or group, key=lambda e: -len(e.metrics))
    return list(dict.fromkeys(m for entry in rows for m in (*entry.metrics, *entry.missing)))


def _standings(group: Sequence[Entry], examples_of: ExamplesOf | None, view: View) -> Standings:
    older = older_code(group, view.own)
    current = [entry for entry in group if entry.id not in older]
    metrics = group_metrics(current)
    asked = view.shown(metrics, group)
    shown = [metric for metric in asked if any(metric in entry.metrics for entry in group)]
    series = _series(group if view.baseline else current, metrics, examples_of)
    pairs = PairContrasts(series)
    places = ranking(current, metrics, series, pairs, view)
    means = [f"{MEAN}/{places.name}"] if places and places.means else []
    tops = {metric: _best(current, pairs, metric) for metric in (*shown, *means)}
    baseline = _baseline(current, view.baseline) if view.baseline else None
    names = [*((metric, metric) for metric in shown), *((MEAN, metric) for metric in means)]
    differences = {
        entry.id: {name: test for name, metric in names if (test := pairs(entry, baseline, metric)) is not None}
        for entry in group
        if isinstance(baseline, Entry) and entry.id != baseline.id
    }
    return Standings(
        rows=tuple(_ordered(group, older, baseline, places, view)),
        older=older,
        metrics=tuple(shown),
        absent={metric: _reason(group, metric) for metric in asked if metric not in shown},
        best={metric: top for metric, (top, _) in tops.items()},
        untested={metric: why for metric, (_, why) in tops.items() if why},
        ranking=places,
        baseline=baseline,
        differences=differences,
        tested=tuple(contrast for contrast in pairs.made if contrast.p is not None),
    )


def _baseline(group: Sequence[Entry], text: str) -> Entry | str:
    """Return the row that `--baseline` means among a group's rows, or why there is none."""
    meant = [entry for entry in group if is_row(text, entry.id, entry.objective.name, entry.objective.label)]
    if len(meant) == 1:
        return meant[0]
    if not meant:
        return f"no objective here is {text}"
    shown = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in meant[:3])
    return f"{text} means {len(meant)} objectives here ({shown}{', ...' if len(meant) > 3 else ''})"


def _series(group: Sequence[Entry], metrics: Sequence[str], examples_of: ExamplesOf | None) -> SeriesByMetric:
    # Fewer seeds are undetermined with examples too, and one row has nothing to be compared with.
    read = [e for e in group if e.untrained or len(e.seeds) >= MIN_SEEDS] if examples_of else []
    examples = {e.id: examples_of(e) for e in read} if examples_of and len(read) > 1 else {}
    found: dict[str, dict[str, Series]] = {metric: {} for metric in metrics}
    for metric in metrics:
        for entry in group:
            if row := Series.of_entry(entry, metric, examples.get(entry.id)):
                found[metric][entry.id] = row
    return found


def _reason(group: Sequence[Entry], metric: str) -> str:
    return next((entry.missing[metric] for entry in group if metric in entry.missing), "not measured")


def _best(current: Sequence[Entry], pairs: PairContrasts, metric: str) -> tuple[str | None, str | None]:
    """Return the best row of a metric, or None and why the rows cannot be told apart, if that is why."""
    if any(metric in entry.metrics and SMALL_N_FLAG in entry.metrics[metric].flags for entry in current):
        return None, "too few examples"
    return pairs.best(current, metric)


def _ordered(
    group: Sequence[Entry], older: frozenset[str], baseline: Entry | str | None, places: Ranking | None, view: View
) -> list[Entry]:
    """Return older code last, and first the baseline, then the reader's own rows; within these, as asked for.

    Else by what they are ranked by, else `pretrained` and the oldest first.
    """
    rows = sorted(group, key=lambda e: (not e.untrained, e.provenance.created, e.objective.label))
    if places and (places.name == view.sort or (places.places and not view.sort)):
        columns = places.columns
    else:
        columns = view.sorted_by(group_metrics(group))
    if view.sort == "created":
        rows.sort(key=lambda e: e.provenance.created, reverse=True)
    elif view.sort == "name":
        rows.sort(key=lambda e: e.objective.label)
    elif columns:
        rows.sort(key=lambda e: _badness(e, columns))
    return sorted(rows, key=lambda e: (e.id in older, e != baseline, e.id not in view.own))


def _badness(entry: Entry, columns: Sequence[str]) -> float:
    """Return a number that is lower for better rows (for lower ones, if neither side is), and highest without a value.

    The mean over tasks is that of `Ranking`: of logarithms for perplexities.
    """
    found = [entry.metrics[c] for c in columns if c in entry.metrics]
    if not found or len(found) < len(columns):
        return math.inf
    mean = fmean(math.log(m.mean) if m.unit == "perplexity" else m.mean for m in found)
    return -mean if found[0].higher_is_better else mean


def _check(view: View, split: Sequence[Sequence[Entry]]) -> None:
    if view.sort and view.sort not in ORDERS:
        metrics = {metric for group in split for metric in group_metrics(group)}
        if split and not named(view.sort, metrics):
            known = metrics if "/" in view.sort else {metric.split("/", 1)[1] for metric in metrics}
            raise UnknownNameError("metric to sort by", view.sort, {*ORDERS, *map(clean, known)})
    if view.baseline and split:
        rows = {(e.id, e.objective.name, e.objective.label) for group in split for e in group}
        if not any(is_row(view.baseline, *row) for row in rows):
            raise UnknownNameError("objective to be the baseline", view.baseline, {clean(label) for *_, label in rows})
