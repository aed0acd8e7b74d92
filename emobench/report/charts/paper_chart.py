"""A paper's figures beside ours: values with intervals, judges' verdicts as bars, and scaling on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.classical import LogLine
from emobench.report.charts.generation_charts import scatter as scatter_of
from emobench.report.charts.vega_lite import Row, known, panel, picture, series_of, write_picture
from emobench.report.numbers import scale, unit_label
from emobench.report.palette import FILLS, GREY, OBJECTIVES
from emobench.report.paper_table import Duel, PaperComparison

PAPER, HERE = "paper", "here, with its 95 % interval"
OUTCOMES = {"win": FILLS["better"].light, "tie": FILLS["even"].light, "loss": FILLS["worse"].light}
STEPS = 24
"""Points of the band of a line of scaling."""
NOTE = "points: the mean over tasks, one for each seed; lines: least squares over log10(x), with their 95% bands"


def write(tables: Sequence[PaperComparison], path: Path, *, scatter: bool) -> None:
    """Draw tables into an SVG or PNG file, by its name's end. Raises StorageError, ConfigError for nothing to draw."""
    if not any(table.columns for table in tables):
        raise ConfigError(f"{path} was not drawn: no metric of the table was measured.")
    write_picture(points(tables) if scatter else dots(tables), path)


def points(tables: Sequence[PaperComparison]) -> dict[str, Any]:
    """Return the specification of forward against reverse cross-entropy: a panel for each corpus, a point a row."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        for task in dict.fromkeys(column.split("/", 1)[0] for column in table.columns):
            for row in table.rows:
                point: dict[str, Any] = {"objective": row, "corpus": _place(tables, table, task)}
                for name in ("forward", "reverse"):
                    if summary := table.ours(row, f"{task}/{name}_cross_entropy"):
                        low, high = summary.ci95 or (None, None)
                        point |= {name: summary.mean, f"{name}_low": low, f"{name}_high": high}
                if "forward" in point and "reverse" in point:
                    rows.append(point)
    return scatter_of(rows)


def dots(tables: Sequence[PaperComparison]) -> dict[str, Any]:
    """Return the specification of a panel for each metric: the paper's value and ours, a line for each row."""
    panels = []
    for table in tables:
        for metric in table.columns:
            task, name = metric.split("/", 1)
            title = {"text": clean(f"{_place(tables, table, task)} · {name}"), "fontSize": 12, "anchor": "middle"}
            panels.append({"title": title, "width": 220, "height": {"step": 26}, **_dots(table, metric)})
    return picture(f"{tables[0].title.split(' · ')[0]}: published and measured", panels)


def _dots(table: PaperComparison, metric: str) -> dict[str, Any]:
    """Return the values and layers of a metric's panel."""
    rows, unit = [], ""
    for row in table.rows:
        ours, paper = table.ours(row, metric), table.paper(row, metric)
        shown: dict[str, Any] = {"row": clean(row), "measured": None, "published": None, "low": None, "high": None}
        if ours:
            unit = unit or unit_label([ours])
            times = scale(ours.unit)
            low, high = ours.ci95 or (None, None)
            shown["measured"] = times * ours.mean
            if low is not None and high is not None:
                shown |= {"low": times * low, "high": times * high}
        if paper:
            shown["published"] = scale((ours or paper).unit) * paper.mean
        rows.append(shown)
    y = {"field": "row", "type": "nominal", "sort": None, "axis": {"title": None, "ticks": False}}
    x = {"type": "quantitative", "scale": {"zero": False}, "axis": {"title": clean(unit), "tickCount": 5}}
    colour = {
        "type": "nominal",
        "scale": {"domain": [PAPER, HERE], "range": [GREY.light, OBJECTIVES[0].light]},
        "legend": {"title": None, "orient": "bottom", "symbolOpacity": 1},
    }
    ours_here = {"y": y, "color": {**colour, "datum": HERE}}
    layers = [
        {
            "transform": known("low"),
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {**ours_here, "x": {**x, "field": "low"}, "x2": {"field": "high"}},
        },
        {
            "transform": known("measured"),
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "shape": "circle"},
            "encoding": {**ours_here, "x": {**x, "field": "measured"}},
        },
    ]
    if table.published:
        layers.append(
            {
                "transform": known("published"),
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "shape": "diamond"},
                "encoding": {"y": y, "color": {**colour, "datum": PAPER}, "x": {**x, "field": "published"}},
            }
        )
    return {"data": {"values": rows}, "layer": layers}


def _place(tables: Sequence[PaperComparison], table: PaperComparison, task: str) -> str:
    """Return what a panel is of: the task, and the model if there are several."""
    return task if len(tables) == 1 else f"{table.title.split(' · ')[-1]}, {task}"


def write_duels(title: str, duels: Sequence[Duel], path: Path) -> None:
    """Draw a bar for each model, judge and seed, as in Figures 3 to 6 of the EMO paper: wins, ties and losses.

    The file is SVG or PNG, by its name's end. Raises StorageError, ConfigError for nothing to draw.
    """
    if not duels:
        raise ConfigError(f"{path} was not drawn: no judge gave enough verdicts.")
    rows = []
    for duel in duels:
        counts = (duel.wins, duel.ties, duel.losses)
        label = clean(f"{duel.subject}: {duel.row} against {duel.baseline}, {duel.label}")
        for outcome, count, end in zip(OUTCOMES, counts, accumulate(counts), strict=True):
            low, high = 100 * (end - count) / sum(counts), 100 * end / sum(counts)
            row = {"label": label, "outcome": outcome, "count": count, "from": low, "to": high}
            rows.append({**row, "middle": (low + high) / 2})
    y = {"field": "label", "type": "nominal", "sort": None, "axis": {"title": None, "ticks": False, "labelLimit": 320}}
    x = {"type": "quantitative", "scale": {"domain": [0, 100]}, "axis": {"title": "instructions (%)", "tickCount": 5}}
    colour = {
        "field": "outcome",
        "type": "nominal",
        "scale": {"domain": list(OUTCOMES), "range": list(OUTCOMES.values())},
        "legend": {"title": None, "orient": "bottom"},
    }
    bar = {
        "mark": {"type": "bar", "stroke": "#57606a", "strokeWidth": 0.5},
        "encoding": {"y": y, "x": {**x, "field": "from"}, "x2": {"field": "to"}, "color": colour},
    }
    text = {
        "transform": [{"filter": "datum.count > 0"}],
        "mark": {"type": "text", "fontSize": 11},
        "encoding": {"y": y, "x": {**x, "field": "middle"}, "text": {"field": "count"}},
    }
    bars = {"width": 420, "height": {"step": 30}, "data": {"values": rows}, "layer": [bar, text]}
    write_picture(picture(clean(title), [bars]), path)


def scaling_picture(
    title: str, metric: str, panels: Mapping[str, tuple[Sequence[Row], Mapping[str, LogLine]]]
) -> dict[str, Any]:
    """Return the specification of a figure of scaling.

    A panel has its axis as its name, and points with `series`, `size` and `value` (a fraction), and the line of each
    series.
    """
    names: list[str] = []
    for points, _ in panels.values():
        names += [name for name in series_of(points) if name not in names]
    drawn = []
    for axis, (points, lines) in panels.items():
        drawn.append(panel(axis, _scaled(points, lines), _scaling_layers(axis, metric), names))
    return picture(title, drawn, NOTE)


def _scaled(points: Sequence[Row], lines: Mapping[str, LogLine]) -> list[dict[str, Any]]:
    """Return the points of a panel, and those of its lines with their bands."""
    rows = []
    for point in points:
        rows.append({"kind": "point", "series": point["series"], "x": point["size"], "y": 100 * point["value"]})
    sizes = [point["size"] for point in points]
    low, high = min(sizes), max(sizes)
    for name, line in lines.items():
        for place in range(STEPS + 1):
            x = low * (high / low) ** (place / STEPS)
            row = {"kind": "line", "series": name, "x": x, "y": 100 * line.at(x), "low": None, "high": None}
            if band := line.band(x):
                # An accuracy is no number below 0 or above 1, and the band of three sizes may be.
                row["low"], row["high"] = (100 * min(max(end, 0.0), 1.0) for end in band)
            rows.append(row)
    return rows


def _scaling_layers(name: str, metric: str) -> list[dict[str, Any]]:
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "axis": {"title": name, "tickCount": 5, "format": "~s"},
    }
    y = {"type": "quantitative", "scale": {"zero": False}, "axis": {"title": f"mean {metric} (%)", "tickCount": 5}}
    line = {"x": x, "y": {**y, "field": "y"}}
    return [
        {
            "transform": [{"filter": "datum.kind == 'line' && isValid(datum.low)"}],
            "mark": {"type": "area", "opacity": 0.12},
            "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
        },
        {
            "transform": [{"filter": "datum.kind == 'line'"}],
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": line,
        },
        {
            "transform": [{"filter": "datum.kind == 'point'"}],
            "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.9},
            "encoding": line,
        },
    ]
