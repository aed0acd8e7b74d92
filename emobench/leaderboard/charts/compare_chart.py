"""A comparison as a picture: every difference with its 95 % interval, beside zero (a forest plot), as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vl_convert

from emobench.leaderboard.charts.vega_lite import PAPER, Palette
from emobench.leaderboard.render.compare_table import pair_tables
from emobench.leaderboard.render.numbers import effect, p_value
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.stats.compare import Comparison
from emobench.leaderboard.stats.contrasts import Contrast

WIDTH, SCALE = 420, 2  # points of a panel, and pixels for each point
AXIS = {"title": None, "ticks": False, "labelLimit": 240, "minExtent": 240}  # as wide in each panel


def png(comparisons: Sequence[Comparison]) -> bytes:
    """Return the picture of comparisons."""
    return vl_convert.vegalite_to_png(specification(comparisons), scale=SCALE)


def specification(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a Vega-Lite specification: a panel for each candidate and unit, a row for each metric."""
    panels: list[dict[str, Any]] = []
    for table in pair_tables(comparisons):
        pairs = list(zip(table.grid.rows, table.contrasts, strict=True))
        for place, unit in enumerate(dict.fromkeys(unit_of(contrast) for contrast in table.contrasts)):
            rows = [
                {
                    "metric": label.text,
                    "effect": effect(contrast, contrast.effect),
                    "low": effect(contrast, contrast.ci95[0]) if contrast.ci95 else None,
                    "high": effect(contrast, contrast.ci95[1]) if contrast.ci95 else None,
                    "verdict": contrast.word or "none",
                    "label": _verdict(contrast),
                }
                for label, contrast in pairs
                if unit_of(contrast) == unit
            ]
            title = {"text": clean("" if place else table.grid.title), "fontSize": 12}
            panels.append({"title": title, "width": WIDTH, **forest(rows, unit, PAPER)})
    return {
        "background": "white",
        "padding": 12,
        "data": {"values": []},
        "vconcat": panels,
        "spacing": 24,
        "config": {"font": "DejaVu Sans, Arial, sans-serif", "view": {"stroke": None}, "title": {"anchor": "start"}},
    }


def _verdict(contrast: Contrast) -> str:
    p = "" if contrast.p_holm is None else f", p {p_value(contrast.p_holm)}{' (Holm)' if contrast.tests > 1 else ''}"
    return (contrast.word or "") + p


def forest(rows: list[dict[str, Any]] | str, unit: str, palette: Palette) -> dict[str, Any]:
    """Return a forest plot of rows {metric, effect, low, high, verdict, label}, without a width.

    `rows` and `unit` may name what a page fills in (`board_charts`).
    """
    y = {"field": "metric", "type": "nominal", "sort": None, "axis": AXIS}
    scale = {"domain": list(palette.verdicts), "range": list(palette.verdicts.values())}
    colour = {"field": "verdict", "type": "nominal", "scale": scale, "legend": None}
    axis = {"title": f"difference, 95 % interval ({unit})", "tickCount": 7}

    def x(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "axis": axis}

    return {
        "height": {"step": 24},
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "rule", "color": palette.text}, "encoding": {"x": {"datum": 0, "type": "quantitative"}}},
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"y": y, "x": x("low"), "x2": {"field": "high"}, "color": colour},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"y": y, "x": x("effect"), "color": colour},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 8, "color": palette.text},
                "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "label", "type": "nominal"}},
            },
        ],
    }


def unit_of(contrast: Contrast) -> str:
    if contrast.log_scale:
        return "% of the baseline"
    return {"fraction": "percentage points"}.get(contrast.unit, clean(contrast.unit))
