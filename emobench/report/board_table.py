"""The tables of a leaderboard: one table for each group of comparable entries, or all of it as JSON.

No control character of a name, a task or a reason reaches a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN, clean, labels
from emobench.leaderboard.query.standings import Standings, View, standings
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import Contrast
from emobench.leaderboard.stats.series import mean_summary
from emobench.report import notes as captions
from emobench.report.numbers import ABSENT, decimals, difference, number, relative_decimals, unit_label
from emobench.report.palette import TERMINAL, in_terminal
from emobench.report.tables import Cell, Notes, Report, Table

SCHEMA = 2
"""Of the document that `to_json` returns; its entries have a schema of their own."""


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
    - `ranks`, null if nothing is ranked: `metric` and `tasks`; by id the `places` and the `means` over tasks; and
      in `why`, by id or under "all", why a row has no place;
    - `baseline`: an id or null; `differences`: id -> metric -> `Contrast`, with "mean" for the mean over tasks.

    Fractions are fractions, and differences of perplexities log ratios.
    """
    groups = standings(entries, examples_of, view)
    return {"schema": SCHEMA, "groups": list(map(_plain, groups))}


def _plain(group: Standings) -> dict[str, Any]:
    first, ranks = to_plain(group.rows[0]), None
    if ranking := group.ranking:
        tasks = list(map(captions.task_of, ranking.columns))
        means = {}
        for key, values in ranking.means.items():
            means[key] = sum(values) / len(values)
        why = dict(ranking.unranked)
        if ranking.remark:
            why["all"] = ranking.remark
        ranks = {"metric": ranking.name, "tasks": tasks, "places": dict(ranking.places), "means": means, "why": why}
    baseline = None
    if isinstance(group.baseline, Entry):
        baseline = group.baseline.id
    return {
        "suite": first["suite"],
        "model": first["model"],
        "entries": to_plain(group.rows),
        "best": to_plain(group.best),
        "untested": to_plain(group.untested),
        "older_code": sorted(group.older),
        "ranks": ranks,
        "baseline": baseline,
        "differences": to_plain(group.differences),
    }


@dataclass
class _Column:
    """A column of a board's table; `task` is empty for ranks. `unit` includes the arrow."""

    task: str
    name: str
    cells: Sequence[Cell]
    unit: str = ""
    size: str = ""

    def header(self) -> str:
        metric = "/\n".join(filter(None, [self.task, self.name]))
        return "\n".join(filter(None, [metric, f"{self.unit} {self.size}".strip()]))


class _BoardTable:
    """Makes the table of one group, and collects its footnotes."""

    def __init__(self, shown: Standings, view: View) -> None:
        self.shown, self.view, self.rows = shown, view, shown.rows
        self.notes = Notes()
        self.labels: dict[str, str] = {}
        for entry, label in zip(shown.rows, labels(shown.rows, shown.older), strict=True):
            self.labels[entry.id] = label

    def table(self, above: Sequence[Entry]) -> Table:
        """Return the table; `above` has a row of each table above it that is of the same suite and model."""
        shown = self.shown
        tasks = list(dict.fromkeys(map(captions.task_of, shown.metrics)))
        columns = [*self._ranking(), *map(self._metric, shown.metrics)]
        if len(tasks) < 2:
            for column in columns:
                column.task = ""
        first = captions.representative(self.rows)
        legend = captions.legend(shown, self.labels, intervals=self.view.intervals)
        title, headers = clean(f"{first.suite} · {first.model.name}"), map(_Column.header, columns)
        lines, notes = captions.conditions(self.rows, tasks, above), (*legend, *self.notes.lines())
        rows, columns_shown = tuple(self._rows(columns)), ("objective", *headers)
        return Table(title=title, columns=columns_shown, rows=rows, above=tuple(lines), below=notes, across="metric")

    def _rows(self, columns: Sequence[_Column]) -> Iterator[tuple[Cell, ...]]:
        """Yield each entry's label and cells. Entries of older code are dim."""
        colours = in_terminal(entry.objective.name for entry in self.rows)
        for place, entry in enumerate(self.rows):
            label, style = self.labels[entry.id], colours[entry.objective.name]
            if entry.id in self.shown.older:
                label, style = f"{label} older code", "dim"
            row = [Cell(label, style)]
            for column in columns:
                cell = column.cells[place]
                if entry.id in self.shown.older:
                    cell = Cell(cell.text.replace("*", ""), "dim")
                row.append(cell)
            yield tuple(row)

    def _ranking(self) -> list[_Column]:
        """Return the columns of the ranks and of the mean over tasks, if the table has them."""
        columns, ranking = [], self.shown.ranking
        if ranking and ranking.places:
            cells = []
            for entry in self.rows:
                why = [ranking.unranked[entry.id]] if entry.id in ranking.unranked else []
                cells.append(Cell(str(ranking.places.get(entry.id, ABSENT)) + self.notes.marks(why)))
            columns.append(_Column("", "rank", cells))
        if ranking and ranking.means:
            means = {}
            for entry in self.rows:
                if values := ranking.means.get(entry.id):
                    means[entry.id] = mean_summary(entry.metrics[ranking.columns[0]], values)
            cells = self._cells(MEAN, means, f"{MEAN}/{ranking.name}")
            columns.append(_Column(MEAN, ranking.name, cells, unit_label(list(means.values()))))
        return columns

    def _metric(self, metric: str) -> _Column:
        """Return a metric's column: its header has the footnotes that all of its cells share."""
        remarks, summaries = [], {}
        for entry in self.rows:
            remarks.append(self._remarks(entry, metric))
            if metric in entry.metrics:
                summaries[entry.id] = entry.metrics[metric]
        shared: set[str] = set()
        if len(remarks) > 1:
            shared = set(remarks[0]).intersection(*remarks)
        cells = []
        for cell, of_row in zip(self._cells(metric, summaries, metric), remarks, strict=True):
            own = [remark for remark in of_row if remark not in shared]
            cells.append(Cell(cell.text + self.notes.marks(own), cell.style))
        size = ""
        counts = {summary.n for summary in summaries.values()}
        if self.view.intervals and len(counts) == 1 and None not in counts:
            size = f"n={counts.pop()}"
        size += self.notes.marks(filter(shared.__contains__, remarks[0]))
        task, name = map(clean, metric.split("/", 1))
        unit = unit_label(list(summaries.values()))
        return _Column(task, name, cells, unit, size.strip())

    def _cells(self, metric: str, summaries: Mapping[str, MetricSummary], best_of: str) -> list[Cell]:
        """Return the cells of a metric, or of MEAN, by the summaries of rows that have one."""
        column, baseline, intervals = list(summaries.values()), self.shown.baseline, self.view.intervals
        cells = []
        for entry in self.rows:
            if entry.id not in summaries:
                cells.append(Cell(ABSENT))
            elif isinstance(baseline, Entry) and entry.id != baseline.id:
                contrast = self.shown.differences[entry.id].get(metric)
                cells.append(difference_cell(contrast, column, intervals=intervals))
            else:
                text = number(summaries[entry.id], decimals(column), interval=intervals)
                best = baseline is None and self.shown.best.get(best_of) == entry.id
                cells.append(Cell(f"{text}*", "bold") if best else Cell(text))
        return cells

    def _remarks(self, entry: Entry, metric: str) -> list[str]:
        if metric not in entry.metrics:
            return [f"{metric}: {entry.missing.get(metric, 'not measured')}"]
        summary = entry.metrics[metric]
        remarks = captions.flag_texts(summary)
        if self.view.intervals and summary.ci95 is None and self.shown.baseline is None:
            remarks.append(f"no interval: {summary.ci95_missing or 'none was recorded'}")
        return remarks


def difference_cell(contrast: Contrast | None, column: Sequence[MetricSummary], *, intervals: bool = False) -> Cell:
    """Return a difference with the decimals of its column, starred if it is beyond noise."""
    if contrast is None:
        return Cell(ABSENT)
    places = relative_decimals(column) if contrast.log_scale else decimals(column)
    text = difference(contrast, places, interval=intervals)
    if not contrast.beyond_noise:
        return Cell(text)
    return Cell(f"{text}*", f"bold {TERMINAL[str(contrast.verdict)]}")
