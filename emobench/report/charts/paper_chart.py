"""A paper's table and ours as a picture: published and measured values with intervals, or two metrics as points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.report import numbers as figures
from emobench.report.charts.generation_charts import scatter as scatter_of
from emobench.report.charts.vega_lite import picture, write_picture
from emobench.report.palette import GREY, OBJECTIVES
from emobench.report.paper_table import PaperComparison

WIDTH, STEP = 220, 26
"""Points of a panel's width, and of a row."""
PAPER, HERE = "paper", "here, with its 95 % interval"


def write(tables: Sequence[PaperComparison], path: Path, *, scatter: bool) -> None:
    """Draw tables into an SVG or PNG file, by its name's end. Raises StorageError, ConfigError for nothing to draw."""
    if not any(table.columns for table in tables):
        raise ConfigError(f"{path} was not drawn: no metric of the table was measured.")
    write_picture(points(tables) if scatter else dots(tables), path, "Name another file with --plot.")


def points(tables: Sequence[PaperComparison]) -> dict[str, Any]:
    """Return the specification of forward against reverse cross-entropy: a panel for each corpus, a point a row."""
    rows: list[dict[str, Any]] = []
    for table in tables:
        for task in dict.fromkeys(column.split("/", 1)[0] for column in table.columns):
            for row in table.rows:
                point: dict[str, Any] = {"objective": row, "corpus": _place(tables, table, task)}
                for name in ("forward", "reverse"):
                    summary = table.ours(row, f"{task}/{name}_cross_entropy")
                    low, high = (None, None) if summary is None or summary.ci95 is None else summary.ci95
                    point |= {name: summary and summary.mean, f"{name}_low": low, f"{name}_high": high}
                if point["forward"] is not None and point["reverse"] is not None:
                    rows.append(point)
    return scatter_of(rows)


def dots(tables: Sequence[PaperComparison]) -> dict[str, Any]:
    """Return the specification of a panel for each metric: the paper's value and ours, a line for each row."""
    panels = [_panel(tables, table, metric) for table in tables for metric in table.columns]
    return picture(f"{tables[0].title.split(' · ')[0]}: published and measured", panels)


def _panel(tables: Sequence[PaperComparison], table: PaperComparison, metric: str) -> dict[str, Any]:
    rows = [_row(table, row, metric) for row in table.rows]
    summary = next(s for row in table.rows for s in [table.ours(row, metric)] if s is not None)
    unit = figures.unit_label([summary])
    y = {"field": "row", "type": "nominal", "sort": None, "axis": {"title": None, "ticks": False}}
    x = {"type": "quantitative", "scale": {"zero": False}, "axis": {"title": clean(unit), "tickCount": 5}}
    colour = {
        "type": "nominal",
        "scale": {"domain": [PAPER, HERE], "range": [GREY.light, OBJECTIVES[0].light]},
        "legend": {"title": None, "orient": "bottom", "symbolOpacity": 1},
    }

    def mark(field: str, shape: str, label: str) -> dict[str, Any]:
        return {
            "transform": [{"filter": f"isValid(datum.{field})"}],
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "shape": shape},
            "encoding": {"y": y, "x": {**x, "field": field}, "color": {**colour, "datum": label}},
        }

    bar = {
        "transform": [{"filter": "isValid(datum.low)"}],
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": {**colour, "datum": HERE}},
    }
    layers = [bar, mark("measured", "circle", HERE)]
    layers += [mark("published", "diamond", PAPER)] if table.published else []
    task, name = metric.split("/", 1)
    title = {"text": clean(f"{_place(tables, table, task)} · {name}"), "fontSize": 12, "anchor": "middle"}
    return {"title": title, "width": WIDTH, "height": {"step": STEP}, "data": {"values": rows}, "layer": layers}


def _row(table: PaperComparison, row: str, metric: str) -> dict[str, Any]:
    ours, paper = table.ours(row, metric), table.paper(row, metric)
    low, high = (None, None) if ours is None or ours.ci95 is None else ours.ci95
    values = {"measured": ours and ours.mean, "published": paper and paper.mean, "low": low, "high": high}
    unit = next((summary.unit for summary in (ours, paper) if summary is not None), "")
    shown = {name: None if value is None else value * figures.scale(unit) for name, value in values.items()}
    return {"row": clean(row), **shown}


def _place(tables: Sequence[PaperComparison], table: PaperComparison, task: str) -> str:
    """Return what a panel is of: the task, and the model where there are several."""
    return task if len(tables) == 1 else f"{table.title.split(' · ')[-1]}, {task}"
