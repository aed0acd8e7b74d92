"""A paper's table and ours as a picture: published and measured values with intervals, or two metrics as points."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import vl_convert

from emobench.errors import ConfigError, StorageError
from emobench.leaderboard.charts.generation_charts import scatter as scatter_of
from emobench.leaderboard.charts.vega_lite import COLOURS, GREY, SCALE, picture
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.paper_table import SideBySide
from emobench.leaderboard.schema.labels import clean

WIDTH, STEP = 220, 26
"""Points of a panel's width, and of a row."""
PAPER, HERE = "paper", "here, with its 95 % interval"


def write(tables: Sequence[SideBySide], path: Path, *, scatter: bool) -> None:
    """Draw tables into an SVG or PNG file, by its name's end. Raises StorageError, ConfigError for nothing to draw."""
    if not any(found.columns for found in tables):
        raise ConfigError(f"{path} was not drawn: no metric of the table was measured.")
    spec = points(tables) if scatter else dots(tables)
    try:
        if path.suffix.lower() == ".png":
            path.write_bytes(vl_convert.vegalite_to_png(spec, scale=SCALE))
        else:
            path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}. Name another file with --plot.") from error


def points(tables: Sequence[SideBySide]) -> dict[str, Any]:
    """Return the specification of forward against reverse cross-entropy: a panel for each corpus, a point a row."""
    rows: list[dict[str, Any]] = []
    for found in tables:
        for task in dict.fromkeys(column.split("/", 1)[0] for column in found.columns):
            for row in found.rows:
                point: dict[str, Any] = {"objective": row, "corpus": _place(tables, found, task)}
                for name in ("forward", "reverse"):
                    summary = found.summary("measured", row, f"{task}/{name}_cross_entropy")
                    low, high = (None, None) if summary is None or summary.ci95 is None else summary.ci95
                    point |= {name: summary and summary.mean, f"{name}_low": low, f"{name}_high": high}
                if point["forward"] is not None and point["reverse"] is not None:
                    rows.append(point)
    return scatter_of(rows)


def dots(tables: Sequence[SideBySide]) -> dict[str, Any]:
    """Return the specification of a panel for each metric: the paper's value and ours, a line for each row."""
    panels = [_panel(tables, found, metric) for found in tables for metric in found.columns]
    return picture(f"{tables[0].title.split(' · ')[0]}: published and measured", panels)


def _panel(tables: Sequence[SideBySide], found: SideBySide, metric: str) -> dict[str, Any]:
    rows = [_row(found, row, metric) for row in found.rows]
    summary = next(s for row in found.rows for s in [found.summary("measured", row, metric)] if s is not None)
    unit = figures.unit_label([summary])
    y = {"field": "row", "type": "nominal", "sort": None, "axis": {"title": None, "ticks": False}}
    x = {"type": "quantitative", "scale": {"zero": False}, "axis": {"title": clean(unit), "tickCount": 5}}
    colour = {
        "type": "nominal",
        "scale": {"domain": [PAPER, HERE], "range": [GREY, COLOURS[0]]},
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
    layers += [mark("published", "diamond", PAPER)] if found.published else []
    task, name = metric.split("/", 1)
    title = {"text": clean(f"{_place(tables, found, task)} · {name}"), "fontSize": 12, "anchor": "middle"}
    return {"title": title, "width": WIDTH, "height": {"step": STEP}, "data": {"values": rows}, "layer": layers}


def _row(found: SideBySide, row: str, metric: str) -> dict[str, Any]:
    ours, paper = found.summary("measured", row, metric), found.summary("published", row, metric)
    low, high = (None, None) if ours is None or ours.ci95 is None else ours.ci95
    values = {"measured": ours and ours.mean, "published": paper and paper.mean, "low": low, "high": high}
    unit = next((summary.unit for summary in (ours, paper) if summary is not None), "")
    shown = {name: None if value is None else value * figures.scale(unit) for name, value in values.items()}
    return {"row": clean(row), **shown}


def _place(tables: Sequence[SideBySide], found: SideBySide, task: str) -> str:
    """Return what a panel is of: the task, and the model where there are several."""
    return task if len(tables) == 1 else f"{found.title.split(' · ')[-1]}, {task}"
