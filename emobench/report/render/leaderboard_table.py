"""The tables of a leaderboard: one grid for each group of comparable entries, or all of it as JSON.

No control character of a name, a task or a reason reaches a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean, labels
from emobench.leaderboard.query.ranks import Ranking, mean_summary
from emobench.leaderboard.query.standings import Standings, standings
from emobench.leaderboard.query.view import View
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import Contrast
from emobench.report.render import captions
from emobench.report.render import numbers as figures
from emobench.report.render.grid import ABSENT, Cell, Column, Grid, Notes, TableReport
from emobench.report.render.palette import TERMINAL, in_terminal
from emobench.tasks.scores import SECONDARY

SCHEMA = 2
"""Of the document that `to_json` returns; its entries have a schema of their own."""

OWN = "› "


def report(entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None) -> TableReport:
    """Return a table for each group of comparable entries; those of one suite and model follow one another.

    `examples_of` gives an entry's per-example results (from `examples.entry_examples`), which tests pair by item.
    """
    view = view or View()
    together: dict[str, list[Standings]] = {}
    for group in standings(entries, examples_of, view):
        together.setdefault(f"{group.rows[0].suite} {group.rows[0].model.name}", []).append(group)
    return TableReport.of(
        [
            _GridOfGroup(group, view).grid([captions.representative(other.rows) for other in groups[:place]])
            for groups in together.values()
            for place, group in enumerate(groups)
        ]
    )


def to_json(
    entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None
) -> dict[str, Any]:
    """Return {"schema", "groups"}, with for each group of comparable entries:

    - `suite`, `model` and the whole `entries`, in the order shown; `older_code`: ids;
    - `best`: metric, or "mean/<metric>" -> id or null; `untested`: metric -> why its rows cannot be told apart,
      whatever their values;
    - `ranks`, null where nothing is ranked: `metric` and `tasks`; by id the `places` and the `means` over tasks; and
      in `why`, by id or under "all", why a row has no place;
    - `baseline`: an id or null; `differences`: id -> metric -> `Contrast`, with "mean" for the mean over tasks.

    Fractions are fractions, and differences of perplexities log ratios.
    """
    return {"schema": SCHEMA, "groups": [_plain(group) for group in standings(entries, examples_of, view)]}


def _plain(group: Standings) -> dict[str, Any]:
    first = to_plain(group.rows[0])
    ranks = group.ranking
    return {
        "suite": first["suite"],
        "model": first["model"],
        "entries": to_plain(group.rows),
        "best": to_plain(group.best),
        "untested": to_plain(group.untested),
        "older_code": sorted(group.older),
        "ranks": ranks
        and {
            "metric": ranks.name,
            "tasks": [column.split("/", 1)[0] for column in ranks.columns],
            "places": dict(ranks.places),
            "means": {key: sum(values) / len(values) for key, values in ranks.means.items()},
            "why": {**ranks.unranked, **({"all": ranks.remark} if ranks.remark else {})},
        },
        "baseline": group.baseline.id if isinstance(group.baseline, Entry) else None,
        "differences": to_plain(group.differences),
    }


class _GridOfGroup:
    """Makes the grid of one group, and collects its footnotes."""

    def __init__(self, shown: Standings, view: View) -> None:
        self.shown, self.view = shown, view
        self.notes = Notes()
        self.colours = in_terminal(entry.objective.name for entry in shown.rows)
        self.labels = dict(zip((e.id for e in shown.rows), labels(shown.rows, shown.older), strict=True))
        self.own = {entry.id for entry in shown.rows if entry.id in view.own}
        if len(self.own) == len(shown.rows):  # nothing to stand out from
            self.own = set()

    def grid(self, above: Sequence[Entry]) -> Grid:
        rows, metrics, places = self.shown.rows, self.shown.metrics, self.shown.ranking
        columns = [self._rank(places)] if places and places.places else []
        columns += [self._mean(places)] if places and places.means else []
        columns += map(self._column, metrics)
        heads, cells = zip(*columns, strict=True) if columns else ((), ())
        first = captions.representative(rows)
        tasks = list(dict.fromkeys(metric.split("/", 1)[0] for metric in metrics))
        heads, common = _shorter(heads, len(tasks))
        by_row = zip(*cells, strict=True) if cells else [()] * len(rows)
        older = self.shown.older
        return Grid(
            title=clean(f"{first.suite} · {first.model.name}"),
            subtitle=(*captions.conditions(rows, tasks, above), *common),
            rows=tuple(map(self._label, rows)),
            columns=heads,
            cells=tuple(_dimmed(row) if entry.id in older else row for entry, row in zip(rows, by_row, strict=True)),
            legend=tuple(captions.legend(self.shown, self.labels, intervals=self.view.intervals, own=bool(self.own))),
            notes=self.notes.texts,
        )

    def _label(self, entry: Entry) -> Cell:
        mark = "" if not self.own else OWN if entry.id in self.own else " " * len(OWN)
        if entry.id in self.shown.older:
            return Cell(f"{mark}{self.labels[entry.id]} older code", style="dim")
        colour = self.colours[entry.objective.name]
        return Cell(mark + self.labels[entry.id], style=f"bold {colour}" if entry.id in self.own else colour)

    def _rank(self, places: Ranking) -> tuple[Column, tuple[Cell, ...]]:
        cells = []
        for entry in self.shown.rows:
            why = places.unranked.get(entry.id)
            cells.append(Cell(str(places.places.get(entry.id, ABSENT)), notes=self.notes.number([why] if why else [])))
        return Column("", "rank"), tuple(cells)

    def _mean(self, places: Ranking) -> tuple[Column, tuple[Cell, ...]]:
        means = {
            entry.id: mean_summary(entry.metrics[places.columns[0]], places.means[entry.id])
            for entry in self.shown.rows
            if entry.id in places.means
        }
        unit = figures.unit_label(list(means.values()))
        return Column("mean", places.name, unit), tuple(self._cells(MEAN, means, f"{MEAN}/{places.name}"))

    def _column(self, metric: str) -> tuple[Column, tuple[Cell, ...]]:
        """Return a metric's header, with the footnotes that all of its cells share, and its cells."""
        rows = self.shown.rows
        remarks = [self._remarks(entry, metric) for entry in rows]
        shared = [r for r in remarks[0] if len(rows) > 1 and all(r in other for other in remarks)]
        summaries = {entry.id: entry.metrics[metric] for entry in rows if metric in entry.metrics}
        cells = [
            replace(cell, notes=self.notes.number([text for text in own if text not in shared]))
            for cell, own in zip(self._cells(metric, summaries), remarks, strict=True)
        ]
        task, name = (clean(part) for part in metric.split("/", 1))
        counts = {summary.n for summary in summaries.values()}
        size = f"n={counts.pop()}" if self.view.intervals and len(counts) == 1 and None not in counts else ""
        unit = figures.unit_label(list(summaries.values()))
        return Column(task, name, unit, size, self.notes.number(shared)), tuple(cells)

    def _cells(self, metric: str, summaries: Mapping[str, MetricSummary], of: str | None = None) -> list[Cell]:
        """Return the cells of a metric, or of MEAN (`of` "mean/<metric>"), by the summaries of rows that have one."""
        known, baseline, intervals = list(summaries.values()), self.shown.baseline, self.view.intervals
        cells = []
        for entry in self.shown.rows:
            if entry.id not in summaries:
                cells.append(Cell(ABSENT))
            elif isinstance(baseline, Entry) and entry.id != baseline.id:
                cells.append(difference_cell(self.shown.differences[entry.id].get(metric), known, intervals=intervals))
            else:
                best = baseline is None and self.shown.best.get(of or metric) == entry.id
                cells.append(
                    Cell(figures.number(summaries[entry.id], figures.decimals(known), interval=intervals), best)
                )
        return cells

    def _remarks(self, entry: Entry, metric: str) -> list[str]:
        if metric not in entry.metrics:
            return [f"{metric}: {entry.missing.get(metric, 'not measured')}"]
        summary = entry.metrics[metric]
        texts = {
            "small_n": f"small n ({summary.n}): shown, not ranked",
            "fewer_prompts": f"fewer prompts ({summary.n}) than the limit asked for: no more texts are long enough",
        }
        found = [texts.get(flag, flag.replace("_", " ")) for flag in summary.flags if flag != SECONDARY]
        if self.view.intervals and summary.ci95 is None and self.shown.baseline is None:
            found.append(f"no interval: {summary.ci95_missing or 'none was recorded'}")
        return found


def difference_cell(contrast: Contrast | None, column: Sequence[MetricSummary], *, intervals: bool = False) -> Cell:
    """Return a difference with the decimals of its column."""
    if contrast is None:
        return Cell(ABSENT)
    places = (figures.relative_decimals if contrast.log_scale else figures.decimals)(column)
    style = TERMINAL.get(contrast.verdict or "", "") if contrast.beyond_noise else ""
    return Cell(figures.difference(contrast, places, interval=intervals), contrast.beyond_noise, style=style)


def _dimmed(row: Sequence[Cell]) -> tuple[Cell, ...]:
    return tuple(replace(cell, marked=False, style="dim") for cell in row)


def _shorter(heads: tuple[Column, ...], tasks: int) -> tuple[tuple[Column, ...], list[str]]:
    """Return the headers without what all of them share, and a line that says it."""
    if tasks < 2:
        return tuple(replace(head, task="") for head in heads), []
    shared = {(head.metric, head.unit) for head in heads if head.task}
    if len(shared) > 1:
        return heads, []
    ((metric, unit),) = shared
    shorter = tuple(replace(head, metric="", unit="") if head.task else head for head in heads)
    return shorter, [f"{metric} {unit}".strip()]
