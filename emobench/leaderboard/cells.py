"""The text of a leaderboard table, one grid for each comparable group; `table.py` draws it.

A grid has a row for each entry and a column for each metric. No control character of a name, a task or a reason
reaches a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from emobench.leaderboard import captions, figures
from emobench.leaderboard.deltas import MEAN
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import clean, labels
from emobench.leaderboard.standings import Standings
from emobench.leaderboard.view import View

ABSENT = "–"
NO_ENTRIES = "There is no entry yet. `emobench run` makes the first: the embedded default, offline, in a few minutes."
OWN = "› "

Style = Literal["", "own", "older", "better", "worse"]


@dataclass(frozen=True)
class Cell:
    """`marked`: a star, for the best of a column or a difference beyond noise."""

    text: str
    marked: bool = False
    notes: tuple[int, ...] = ()
    style: Style = ""

    def __str__(self) -> str:
        return self.text + ("*" if self.marked else "") + marks(self.notes)


@dataclass(frozen=True)
class Column:
    """`unit` ends in the arrow that points to the better side; `task` is empty where all columns are of one.

    `size` is the number of examples behind a value, such as "n=1821".
    """

    task: str
    metric: str
    unit: str = ""
    size: str = ""
    notes: tuple[int, ...] = ()

    def lines(self) -> str:
        """Return the header on several lines, for a narrow column."""
        last = " ".join(filter(None, [self.unit, self.size])) + marks(self.notes)
        return "\n".join(filter(None, [self.task, self.metric, last.strip()]))

    def __str__(self) -> str:
        name = "/".join(filter(None, [self.task, self.metric]))
        return " ".join(filter(None, [name, self.unit, self.size])) + marks(self.notes)


@dataclass(frozen=True)
class Label:
    text: str
    style: Style = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Grid:
    """`cells[row][column]`; `subtitle` names the conditions that all rows share, and `notes` are numbered from 1."""

    title: str
    subtitle: tuple[str, ...]
    rows: tuple[Label, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[Cell, ...], ...]
    legend: tuple[str, ...]
    notes: tuple[str, ...]


def grids(found: Sequence[Standings], view: View) -> list[Grid]:
    """Return one grid for each group."""
    made: list[Grid] = []
    shown: dict[str, Entry] = {}
    for group in found:
        like = f"{group.rows[0].suite} {group.rows[0].model.name}"
        made.append(_Maker(group, view).grid(shown.get(like)))
        shown.setdefault(like, next((e for e in group.rows if not e.untrained), group.rows[0]))
    return made


def marks(notes: Sequence[int]) -> str:
    return "".join(f" [{note}]" for note in notes)


class _Maker:
    """Makes the grid of one group, and collects its footnotes."""

    def __init__(self, shown: Standings, view: View) -> None:
        self.shown, self.view = shown, view
        self.notes: list[str] = []
        self.labels = dict(zip((e.id for e in shown.rows), labels(shown.rows, shown.older), strict=True))

    def grid(self, like: Entry | None) -> Grid:
        rows, metrics = self.shown.rows, self.shown.metrics
        columns = [self._rank(), self._mean(), *map(self._column, metrics)]
        heads, cells = zip(*[column for column in columns if column], strict=True) if any(columns) else ((), ())
        first = next((entry for entry in rows if not entry.untrained), rows[0])
        tasks = list(dict.fromkeys(metric.split("/", 1)[0] for metric in metrics))
        heads, common = _shorter(heads, len(tasks))
        subtitle = [captions.conditions(first, tasks), *captions.shared_parameters(rows), *common]
        own = any(entry.id not in self.view.own for entry in rows) and any(e.id in self.view.own for e in rows)
        return Grid(
            title=clean(f"{first.suite} · {first.model.name}"),
            subtitle=(*subtitle, *([captions.apart(first, like)] if like else [])),
            rows=tuple(self._label(entry, own) for entry in rows),
            columns=heads,
            cells=tuple(zip(*cells, strict=True)) if cells else tuple(() for _ in rows),
            legend=tuple(captions.legend(self.shown, self.labels, intervals=self.view.intervals, own=own)),
            notes=tuple(self.notes),
        )

    def _label(self, entry: Entry, own: bool) -> Label:
        text = self.labels[entry.id]
        if entry.id in self.shown.older:
            return Label(f"{'  ' if own else ''}{text} older code", "older")
        mine = own and entry.id in self.view.own
        return Label((OWN if mine else "  " if own else "") + text, "own" if mine else "")

    def _column(self, metric: str) -> tuple[Column, tuple[Cell, ...]]:
        """Return a metric's header, with the footnotes that all of its cells share, and its cells."""
        rows = self.shown.rows
        remarks = [self._remarks(entry, metric) for entry in rows]
        shared = [r for r in remarks[0] if len(rows) > 1 and all(r in other for other in remarks)]
        summaries = [entry.metrics[metric] for entry in rows if metric in entry.metrics]
        cells = []
        for entry, own in zip(rows, remarks, strict=True):
            notes = self._number([text for text in own if text not in shared])
            cells.append(replace(self._cell(entry, metric, summaries), notes=notes))
        task, name = (clean(part) for part in metric.split("/", 1))
        counts = {summary.n for summary in summaries}
        size = f"n={counts.pop()}" if self.view.intervals and len(counts) == 1 and None not in counts else ""
        return Column(task, name, figures.unit_label(summaries), size, self._number(shared)), tuple(cells)

    def _cell(self, entry: Entry, metric: str, summaries: Sequence[MetricSummary]) -> Cell:
        if metric not in entry.metrics:
            return Cell(ABSENT, style=self._older(entry))
        if isinstance(self.shown.baseline, Entry) and entry.id != self.shown.baseline.id:
            return self._difference(entry, metric, summaries)
        best = self.shown.best.get(metric) == entry.id and self.shown.baseline is None
        text = figures.number(entry.metrics[metric], figures.decimals(summaries), interval=self.view.intervals)
        return Cell(text, best, style=self._older(entry))

    def _difference(self, entry: Entry, metric: str, summaries: Sequence[MetricSummary]) -> Cell:
        delta = self.shown.differences[entry.id].get(metric)
        if delta is None:
            return Cell(ABSENT)
        rule = figures.relative_decimals if delta.log_scale else figures.decimals
        text = figures.difference(delta, summaries[0].unit, rule(summaries), interval=self.view.intervals)
        style = self._older(entry)
        if delta.beyond_noise and delta.better is not None and not style:
            style = "better" if delta.better else "worse"
        return Cell(text, bool(delta.beyond_noise), style=style)

    def _rank(self) -> tuple[Column, tuple[Cell, ...]] | None:
        places = self.shown.ranking
        if places is None or not places.places:
            return None
        cells = []
        for entry in self.shown.rows:
            why = places.unranked.get(entry.id)
            place = places.places.get(entry.id)
            cells.append(
                Cell(
                    ABSENT if place is None else str(place),
                    notes=self._number([why] if why else []),
                    style=self._older(entry),
                )
            )
        return Column("", "rank"), tuple(cells)

    def _mean(self) -> tuple[Column, tuple[Cell, ...]] | None:
        places = self.shown.ranking
        if places is None or not places.means:
            return None
        summaries = {
            entry.id: _mean_summary(entry, places.columns, places.means.get(entry.id)) for entry in self.shown.rows
        }
        known = [summary for summary in summaries.values() if summary]
        cells = []
        for entry in self.shown.rows:
            summary = summaries[entry.id]
            delta = isinstance(self.shown.baseline, Entry) and entry.id != self.shown.baseline.id
            if summary is None:
                cells.append(Cell(ABSENT, style=self._older(entry)))
            elif delta:
                cells.append(self._difference(entry, MEAN, known))
            else:
                # An interval of the mean over tasks is not recorded.
                cells.append(Cell(figures.number(summary, figures.decimals(known), interval=self.view.intervals)))
        return Column("mean", places.name, figures.unit_label(known)), tuple(cells)

    def _older(self, entry: Entry) -> Style:
        return "older" if entry.id in self.shown.older else ""

    def _remarks(self, entry: Entry, metric: str) -> list[str]:
        if metric not in entry.metrics:
            return [f"{metric}: {entry.missing.get(metric, 'not measured')}"]
        summary = entry.metrics[metric]
        texts = {"small_n": f"small n ({summary.n}): shown, not ranked"}
        found = [texts.get(flag, flag.replace("_", " ")) for flag in summary.flags]
        if self.view.intervals and summary.ci95 is None and self.shown.baseline is None:
            found.append(f"no interval: {summary.ci95_missing or 'none was recorded'}")
        return found

    def _number(self, texts: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of footnotes; equal ones share a number."""
        self.notes += [text for text in dict.fromkeys(map(clean, texts)) if text not in self.notes]
        return tuple(self.notes.index(clean(text)) + 1 for text in texts)


def _mean_summary(entry: Entry, columns: Sequence[str], values: Sequence[float] | None) -> MetricSummary | None:
    from statistics import fmean, stdev

    if not values:
        return None
    like = entry.metrics[columns[0]]
    spread = stdev(values) if len(values) > 1 else None
    return replace(
        like, mean=fmean(values), std=spread, values=tuple(values), n=None, ci95=None, ci95_of=None, flags=()
    )


def _shorter(heads: tuple[Column, ...], tasks: int) -> tuple[tuple[Column, ...], list[str]]:
    """Return the headers without what all of them say, and a line that says it."""
    if tasks < 2:
        return tuple(replace(head, task="") for head in heads), []
    of_tasks = [head for head in heads if head.task]
    said = {(head.metric, head.unit) for head in of_tasks}
    if len(said) > 1 or not of_tasks[0].metric:
        return heads, []
    ((metric, unit),) = said
    return tuple(replace(head, metric="", unit="") if head.task else head for head in heads), [
        f"{metric} {unit}".strip()
    ]
