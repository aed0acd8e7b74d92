"""A comparison as a picture: every difference with its 95 % interval, beside zero (a forest plot), as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from emobench.leaderboard.render.compare_lines import Line, sheets
from emobench.leaderboard.render.numbers import effect
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.stats.compare import Comparison
from emobench.leaderboard.stats.contrasts import Contrast

COLOURS = {
    "better": "#1a7f5a",
    "worse": "#c2410c",
    "tied": "#6b7280",
    "undetermined": "#c4c8cf",
    "describes": "#c4c8cf",
}
"""Distinct for colour-blind readers too; the verdict also stands beside each row."""

SCALE = 2  # pixels for each point
AXIS = {"title": None, "ticks": False, "labelLimit": 240, "minExtent": 240}  # as wide in each panel


def png(comparisons: Sequence[Comparison]) -> bytes:
    """Return the picture of comparisons."""
    import vl_convert

    return vl_convert.vegalite_to_png(specification(comparisons), scale=SCALE)


def specification(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a Vega-Lite specification: a panel for each candidate and unit, a row for each metric."""
    panels: list[dict[str, Any]] = []
    for sheet in sheets(comparisons)[0]:
        pairs = list(zip(sheet.lines, sheet.contrasts, strict=True))
        for place, unit in enumerate(dict.fromkeys(_unit(contrast) for contrast in sheet.contrasts)):
            rows = [
                {
                    "metric": line.metric,
                    "effect": effect(contrast, contrast.effect),
                    "low": effect(contrast, contrast.ci95[0]) if contrast.ci95 else None,
                    "high": effect(contrast, contrast.ci95[1]) if contrast.ci95 else None,
                    "verdict": contrast.word or "none",
                    "said": _said(line, contrast),
                }
                for line, contrast in pairs
                if _unit(contrast) == unit
            ]
            panels.append(_panel(rows, "" if place else sheet.heading, unit))
    return {
        "background": "white",
        "padding": 12,
        "data": {"values": []},
        "vconcat": panels,
        "spacing": 24,
        "config": {"font": "DejaVu Sans, Arial, sans-serif", "view": {"stroke": None}, "title": {"anchor": "start"}},
    }


def _said(line: Line, contrast: Contrast) -> str:
    p = "" if contrast.p_holm is None else f", p {line.p}{' (Holm)' if contrast.tests > 1 else ''}"
    return (contrast.word or "") + p


def _panel(rows: list[dict[str, Any]], heading: str, unit: str) -> dict[str, Any]:
    y = {"field": "metric", "type": "nominal", "sort": None, "axis": AXIS}
    colour = {
        "field": "verdict",
        "type": "nominal",
        "scale": {"domain": list(COLOURS), "range": list(COLOURS.values())},
        "legend": None,
    }

    def x(field: str) -> dict[str, Any]:
        return {
            "field": field,
            "type": "quantitative",
            "axis": {"title": f"difference, 95 % interval ({unit})", "tickCount": 7},
        }

    return {
        "title": {"text": clean(heading), "fontSize": 12},
        "width": 420,
        "height": {"step": 24},
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "rule", "color": "#374151"}, "encoding": {"x": {"datum": 0, "type": "quantitative"}}},
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
                "mark": {"type": "text", "align": "left", "dx": 4, "color": "#374151"},
                "encoding": {"y": y, "x": {"value": 424}, "text": {"field": "said", "type": "nominal"}},
            },
        ],
    }


def _unit(contrast: Contrast) -> str:
    if contrast.log_scale:
        return "% of the baseline"
    return {"fraction": "percentage points"}.get(contrast.unit, clean(contrast.unit))
