"""The text of a leaderboard table, one grid for each comparable group; `table.py` draws it.

No control character of a name, a task or a reason reaches a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emobench.leaderboard.query.ranks import Ranking, mean_summary
from emobench.leaderboard.query.standings import Standings
from emobench.leaderboard.query.view import View
from emobench.leaderboard.render import captions
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.grid import Cell, Column, Grid, Label, Style
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.labels import MEAN, clean, labels
from emobench.tasks.scores import SECONDARY

ABSENT = "–"
NO_ENTRIES = "There is no entry yet. `emobench run` makes the first: the embedded default, offline, in a few minutes."
OWN = "› "


def grids(found: Sequence[Standings], view: View) -> list[Grid]:
    """Return one grid for each group; those of one suite and model stand together, where the first of them does."""
    together: dict[str, list[Standings]] = {}
    for group in found:
        together.setdefault(f"{group.rows[0].suite} {group.rows[0].model.name}", []).append(group)
    return [
        _Maker(group, view).grid([_first(other) for other in of[:place]])
        for of in together.values()
        for place, group in enumerate(of)
    ]


def _first(group: Standings) -> Entry:
    """Return the row that tells what a group shares: a trained one, if there is one."""
    return next((entry for entry in group.rows if not entry.untrained), group.rows[0])


class _Maker:
    """Makes the grid of one group, and collects its footnotes."""

    def __init__(self, shown: Standings, view: View) -> None:
        self.shown, self.view = shown, view
        self.notes: list[str] = []
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
        first = _first(self.shown)
        tasks = list(dict.fromkeys(metric.split("/", 1)[0] for metric in metrics))
        heads, common = _shorter(heads, len(tasks))
        subtitle = [captions.conditions(first, tasks), *captions.shared_parameters(rows), *common]
        legend = captions.legend(self.shown, self.labels, intervals=self.view.intervals, own=bool(self.own))
        return Grid(
            title=clean(f"{first.suite} · {first.model.name}"),
            subtitle=(*subtitle, *([captions.apart(first, above)] if above else [])),
            rows=tuple(map(self._label, rows)),
            columns=heads,
            cells=tuple(zip(*cells, strict=True)) if cells else tuple(() for _ in rows),
            legend=tuple(legend),
            notes=tuple(self.notes),
        )

    def _label(self, entry: Entry) -> Label:
        mark = "" if not self.own else OWN if entry.id in self.own else " " * len(OWN)
        if entry.id in self.shown.older:
            return Label(f"{mark}{self.labels[entry.id]} older code", "older")
        return Label(mark + self.labels[entry.id], "own" if entry.id in self.own else "")

    def _rank(self, places: Ranking) -> tuple[Column, tuple[Cell, ...]]:
        cells = []
        for entry in self.shown.rows:
            why = places.unranked.get(entry.id)
            text = str(places.places.get(entry.id, ABSENT))
            cells.append(Cell(text, notes=self._number([why] if why else []), style=self._older(entry)))
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
            replace(cell, notes=self._number([text for text in own if text not in shared]))
            for cell, own in zip(self._cells(metric, summaries), remarks, strict=True)
        ]
        task, name = (clean(part) for part in metric.split("/", 1))
        counts = {summary.n for summary in summaries.values()}
        size = f"n={counts.pop()}" if self.view.intervals and len(counts) == 1 and None not in counts else ""
        unit = figures.unit_label(list(summaries.values()))
        return Column(task, name, unit, size, self._number(shared)), tuple(cells)

    def _cells(self, metric: str, summaries: Mapping[str, MetricSummary], of: str | None = None) -> list[Cell]:
        """Return the cells of a metric, or of MEAN (`of` "mean/<metric>"), by the summaries of rows that have one."""
        found = list(summaries.values())
        cells = []
        for entry in self.shown.rows:
            if entry.id not in summaries:
                cells.append(Cell(ABSENT, style=self._older(entry)))
            elif isinstance(self.shown.baseline, Entry) and entry.id != self.shown.baseline.id:
                cells.append(self._difference(entry, metric, found))
            else:
                best = self.shown.baseline is None and self.shown.best.get(of or metric) == entry.id
                text = figures.number(summaries[entry.id], figures.decimals(found), interval=self.view.intervals)
                cells.append(Cell(text, best, style=self._older(entry)))
        return cells

    def _difference(self, entry: Entry, metric: str, summaries: Sequence[MetricSummary]) -> Cell:
        style, contrast = self._older(entry), self.shown.differences[entry.id].get(metric)
        if contrast is None:
            return Cell(ABSENT, style=style)
        rule = figures.relative_decimals if contrast.log_scale else figures.decimals
        text = figures.difference(contrast, rule(summaries), interval=self.view.intervals)
        marked = contrast.beyond_noise and not style
        if marked and contrast.verdict in ("better", "worse"):
            style = contrast.verdict
        return Cell(text, marked, style=style)

    def _older(self, entry: Entry) -> Style:
        return "older" if entry.id in self.shown.older else ""

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

    def _number(self, texts: Sequence[str]) -> tuple[int, ...]:
        """Return the numbers of footnotes; equal ones share a number."""
        self.notes += [text for text in dict.fromkeys(map(clean, texts)) if text not in self.notes]
        return tuple(self.notes.index(clean(text)) + 1 for text in texts)


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
