"""Figures of a paper with our numbers: cross-entropies, judges' verdicts as bars, and scaling on logarithmic axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.classical import LogLine
from emobench.report.charts.generation_charts import cross_entropy_points, scatter
from emobench.report.charts.vega_lite import Row, panel, picture, series_of, write_picture
from emobench.report.palette import FILLS
from emobench.report.paper_table import Duel, PaperComparison

OUTCOMES = {"win": FILLS["better"].light, "tie": FILLS["even"].light, "loss": FILLS["worse"].light}
STEPS = 24
"""Points of the band of a line of scaling."""
NOTE = "points: the mean over tasks, one for each seed; lines: least squares over log10(x), with their 95% bands"


def write_scatter(tables: Sequence[PaperComparison], path: Path) -> None:
    """Draw forward against reverse cross-entropy, a point for each measured row, into a file named as a picture.

    Raises StorageError, and ConfigError if there is nothing to draw.
    """
    points: list[Row] = []
    for table in tables:
        model = f"{table.title.split(' · ')[-1]}, " if len(tables) > 1 else ""
        for row, entry in table.measured.items():
            points += cross_entropy_points(row, entry, model)
    if not points:
        raise ConfigError(f"{path} was not drawn: no row has cross-entropies of both directions.")
    write_picture(scatter(points), path)


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
