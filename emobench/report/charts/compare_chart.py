"""A comparison as a picture: every difference with its 95 % interval, beside zero (a forest plot)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.report.charts.vega_lite import write_picture
from emobench.report.compare_table import pair_tables
from emobench.report.numbers import effect, p_value
from emobench.report.palette import VERDICTS

WIDTH = 420  # points of a panel
AXIS = {"title": None, "ticks": False, "labelLimit": 240, "minExtent": 240}  # as wide in each panel
TEXT = "#374151"
LIGHT = {word: tone.light for word, tone in VERDICTS.items()}
"""Colours of marks on paper; the verdict also stands beside each row."""


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw comparisons into a PNG or SVG file, by its name's end. Raises StorageError, ConfigError for no contrast."""
    if not any(comparison.contrasts for comparison in comparisons):
        raise ConfigError(f"{path} was not drawn: there is no metric in common.")
    write_picture(specification(comparisons), path, "Name another file with --png.")


def specification(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a Vega-Lite specification: a panel for each candidate and unit, a row for each metric."""
    panels: list[dict[str, Any]] = []
    for table, contrasts in pair_tables(comparisons):
        rows: dict[str, list[dict[str, Any]]] = {}
        for (label, *_), contrast in zip(table.rows, contrasts, strict=True):
            low, high = contrast.ci95 or (None, None)
            row = {
                "metric": label.text,
                "effect": effect(contrast, contrast.effect),
                "low": None if low is None else effect(contrast, low),
                "high": None if high is None else effect(contrast, high),
                "verdict": contrast.word or "none",
                "label": _verdict(contrast),
            }
            rows.setdefault(unit_of(contrast), []).append(row)
        title = table.title
        for unit, of_unit in rows.items():
            heading = {"text": title, "fontSize": 12}
            panels.append({"title": heading, "width": WIDTH, **forest(of_unit, unit, TEXT, LIGHT)})
            title = ""
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


def forest(rows: list[dict[str, Any]] | str, unit: str, text: str, verdicts: Mapping[str, str]) -> dict[str, Any]:
    """Return a forest plot of rows {metric, effect, low, high, verdict, label}, without a width.

    `text` is the colour of words, and `verdicts` are those of marks. `rows` and `unit` may name what a page fills in
    (`board_charts`).
    """
    y = {"field": "metric", "type": "nominal", "sort": None, "axis": AXIS}
    scale = {"domain": list(verdicts), "range": list(verdicts.values())}
    colour = {"field": "verdict", "type": "nominal", "scale": scale, "legend": None}
    axis = {"title": f"difference, 95 % interval ({unit})", "tickCount": 7}

    def x(field: str) -> dict[str, Any]:
        return {"field": field, "type": "quantitative", "axis": axis}

    return {
        "height": {"step": 24},
        "data": {"values": rows},
        "layer": [
            {"mark": {"type": "rule", "color": text}, "encoding": {"x": {"datum": 0, "type": "quantitative"}}},
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
                "mark": {"type": "text", "align": "left", "dx": 8, "color": text},
                "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "label", "type": "nominal"}},
            },
        ],
    }


def unit_of(contrast: Contrast) -> str:
    if contrast.log_scale:
        return "% of the baseline"
    return {"fraction": "percentage points"}.get(contrast.unit, clean(contrast.unit))
