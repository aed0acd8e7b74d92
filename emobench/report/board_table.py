"""The tables of a leaderboard: one table for each group of comparable entries, or all of it as JSON.

No control character of a name, a task or a reason reaches a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean, labels
from emobench.leaderboard.query.standings import Ranking, Standings, View, standings
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import Contrast
from emobench.leaderboard.stats.series import mean_summary
from emobench.report import notes as captions
from emobench.report import numbers as figures
from emobench.report.numbers import ABSENT
from emobench.report.palette import TERMINAL, in_terminal
from emobench.report.tables import Cell, Notes, Report, Table
from emobench.tasks.scores import SECONDARY

SCHEMA = 2
"""Of the document that `to_json` returns; its entries have a schema of their own."""
OWN = "› "
"""Marks the rows of the run that has just ended."""


def report(entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None) -> Report:
    """Return a table for each group of comparable entries; those of one suite and model follow one another.

    `examples_of` returns an entry's per-example results (from `examples.entry_examples`), which tests pair by item.
    """
    view = view or View()
    by_model: dict[str, list[Standings]] = {}
    for group in standings(entries, examples_of, view):
        by_model.setdefault(f"{group.rows[0].suite} {group.rows[0].model.name}", []).append(group)
    tables = []
    for groups in by_model.values():
        above: list[Entry] = []
        for group in groups:
            tables.append(_BoardTable(group, view).table(above))
            above.append(captions.representative(group.rows))
    return Report.of(tables)


def to_json(
    entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None
) -> dict[str, Any]:
    """Return {"schema", "groups"}, with for each group of comparable entries:

    - `suite`, `model` and the full `entries`, in the order shown; `older_code`: ids;
    - `best`: metric, or "mean/<metric>" -> id or null; `untested`: metric -> why its rows cannot be distinguished,
      whatever their values;
    - `ranks`, null where nothing is ranked: `metric` and `tasks`; by id the `places` and the `means` over tasks; and
      in `why`, by id or under "all", why a row has no place;
    - `baseline`: an id or null; `differences`: id -> metric -> `Contrast`, with "mean" for the mean over tasks.

    Fractions are fractions, and differences of perplexities log ratios.
    """
    return {"schema": SCHEMA, "groups": [_plain(group) for group in standings(entries, examples_of, view)]}


def _plain(group: Standings) -> dict[str, Any]:
    first = to_plain(group.rows[0])
    return {
        "suite": first["suite"],
        "model": first["model"],
        "entries": to_plain(group.rows),
        "best": to_plain(group.best),
        "untested": to_plain(group.untested),
        "older_code": sorted(group.older),
        "ranks": group.ranking and _plain_ranks(group.ranking),
        "baseline": group.baseline.id if isinstance(group.baseline, Entry) else None,
        "differences": to_plain(group.differences),
    }


def _plain_ranks(ranking: Ranking) -> dict[str, Any]:
    why = dict(ranking.unranked)
    if ranking.remark:
        why["all"] = ranking.remark
    return {
        "metric": ranking.name,
        "tasks": [column.split("/", 1)[0] for column in ranking.columns],
        "places": dict(ranking.places),
        "means": {key: sum(values) / len(values) for key, values in ranking.means.items()},
        "why": why,
    }


class _Column:
    """A column of a board's table while it is made; `task` is empty for ranks. `unit` includes the arrow."""

    def __init__(self, task: str, name: str, cells: Sequence[Cell], unit: str = "", size: str = "") -> None:
        self.task, self.name, self.cells, self.unit, self.size = task, name, cells, unit, size

    def header(self) -> str:
        last = f"{self.unit} {self.size}".strip()
        metric = "/\n".join(filter(None, [self.task, self.name]))
        return "\n".join(filter(None, [metric, last]))


class _BoardTable:
    """Makes the table of one group, and collects its footnotes."""

    def __init__(self, shown: Standings, view: View) -> None:
        self.shown, self.view = shown, view
        self.notes = Notes()
        self.colours = in_terminal(entry.objective.name for entry in shown.rows)
        self.labels = dict(zip((e.id for e in shown.rows), labels(shown.rows, shown.older), strict=True))
        self.own = {entry.id for entry in shown.rows if entry.id in view.own}
        if len(self.own) == len(shown.rows):  # nothing to stand out from
            self.own = set()

    def table(self, above: Sequence[Entry]) -> Table:
        """Return the table; `above` has a row of each table above it that is of the same suite and model."""
        rows, metrics = self.shown.rows, self.shown.metrics
        columns = [*self._ranking(), *map(self._metric, metrics)]
        tasks = list(dict.fromkeys(metric.split("/", 1)[0] for metric in metrics))
        common = _without_common_part(columns, len(tasks))
        lines = []
        for place, entry in enumerate(rows):
            cells = [column.cells[place] for column in columns]
            if entry.id in self.shown.older:
                cells = [Cell(cell.text.replace("*", ""), "dim") for cell in cells]
            lines.append((self._label(entry), *cells))
        first = captions.representative(rows)
        legend = captions.legend(self.shown, self.labels, intervals=self.view.intervals, own=bool(self.own))
        return Table(
            title=clean(f"{first.suite} · {first.model.name}"),
            columns=("objective", *(column.header() for column in columns)),
            rows=tuple(lines),
            above=(*captions.conditions(rows, tasks, above), *common),
            below=(*legend, *self.notes.lines()),
            across="metric",
        )

    def _label(self, entry: Entry) -> Cell:
        mark = ""
        if self.own:
            mark = OWN if entry.id in self.own else " " * len(OWN)
        if entry.id in self.shown.older:
            return Cell(f"{mark}{self.labels[entry.id]} older code", "dim")
        colour = self.colours[entry.objective.name]
        return Cell(mark + self.labels[entry.id], f"bold {colour}" if entry.id in self.own else colour)

    def _ranking(self) -> Iterator[_Column]:
        """Yield the columns of the ranks and of the mean over tasks, if the table has them."""
        ranking = self.shown.ranking
        if ranking is None:
            return
        if ranking.places:
            cells = []
            for entry in self.shown.rows:
                why = [ranking.unranked[entry.id]] if entry.id in ranking.unranked else []
                cells.append(Cell(str(ranking.places.get(entry.id, ABSENT)) + self.notes.marks(why)))
            yield _Column("", "rank", cells)
        if ranking.means:
            means = {}
            for entry in self.shown.rows:
                if entry.id in ranking.means:
                    like = entry.metrics[ranking.columns[0]]
                    means[entry.id] = mean_summary(like, ranking.means[entry.id])
            cells = self._cells(MEAN, means, f"{MEAN}/{ranking.name}")
            yield _Column(MEAN, ranking.name, cells, figures.unit_label(list(means.values())))

    def _metric(self, metric: str) -> _Column:
        """Return a metric's column: its header has the footnotes that all of its cells share."""
        rows = self.shown.rows
        remarks = [self._remarks(entry, metric) for entry in rows]
        summaries = {entry.id: entry.metrics[metric] for entry in rows if metric in entry.metrics}
        shared: list[str] = []
        if len(rows) > 1:
            shared = [remark for remark in remarks[0] if all(remark in others for others in remarks)]
        cells = []
        for cell, own in zip(self._cells(metric, summaries, metric), remarks, strict=True):
            cells.append(replace(cell, text=cell.text + self.notes.marks(text for text in own if text not in shared)))
        counts = {summary.n for summary in summaries.values()}
        size = f"n={counts.pop()}" if self.view.intervals and len(counts) == 1 and None not in counts else ""
        task, name = map(clean, metric.split("/", 1))
        unit = figures.unit_label(list(summaries.values()))
        return _Column(task, name, cells, unit, (size + self.notes.marks(shared)).strip())

    def _cells(self, metric: str, summaries: Mapping[str, MetricSummary], best_of: str) -> list[Cell]:
        """Return the cells of a metric, or of MEAN, by the summaries of rows that have one."""
        column, baseline, intervals = list(summaries.values()), self.shown.baseline, self.view.intervals
        cells = []
        for entry in self.shown.rows:
            if entry.id not in summaries:
                cells.append(Cell(ABSENT))
            elif isinstance(baseline, Entry) and entry.id != baseline.id:
                contrast = self.shown.differences[entry.id].get(metric)
                cells.append(difference_cell(contrast, column, intervals=intervals))
            else:
                text = figures.number(summaries[entry.id], figures.decimals(column), interval=intervals)
                best = baseline is None and self.shown.best.get(best_of) == entry.id
                cells.append(Cell(f"{text}*", "bold") if best else Cell(text))
        return cells

    def _remarks(self, entry: Entry, metric: str) -> list[str]:
        if metric not in entry.metrics:
            return [f"{metric}: {entry.missing.get(metric, 'not measured')}"]
        summary = entry.metrics[metric]
        remarks = [captions.flag_text(flag, summary.n) for flag in summary.flags if flag != SECONDARY]
        if self.view.intervals and summary.ci95 is None and self.shown.baseline is None:
            remarks.append(f"no interval: {summary.ci95_missing or 'none was recorded'}")
        return remarks


def difference_cell(contrast: Contrast | None, column: Sequence[MetricSummary], *, intervals: bool = False) -> Cell:
    """Return a difference with the decimals of its column, starred where it is beyond noise."""
    if contrast is None:
        return Cell(ABSENT)
    places = figures.relative_decimals(column) if contrast.log_scale else figures.decimals(column)
    text = figures.difference(contrast, places, interval=intervals)
    if not contrast.beyond_noise:
        return Cell(text)
    return Cell(f"{text}*", f"bold {TERMINAL.get(contrast.verdict or '', '')}".strip())


def _without_common_part(columns: Sequence[_Column], tasks: int) -> list[str]:
    """Take from the columns the task, the metric or the unit that all of them share, and return a line that has it."""
    if tasks < 2:
        for column in columns:
            column.task = ""
        return []
    of_tasks = [column for column in columns if column.task]
    if len({(column.name, column.unit) for column in of_tasks}) > 1:
        return []
    line = f"{of_tasks[0].name} {of_tasks[0].unit}".strip()
    for column in of_tasks:
        column.name = column.unit = ""
    return [line]
