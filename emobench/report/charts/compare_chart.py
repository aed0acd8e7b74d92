"""A comparison as a picture: every difference with its 95 % interval, beside zero (a forest plot)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.report.charts.vega_lite import known, write_picture
from emobench.report.compare_table import pair_tables
from emobench.report.numbers import contrast_ends, p_value
from emobench.report.palette import VERDICTS

AXIS = {"title": None, "ticks": False, "labelLimit": 240, "minExtent": 240}  # as wide in each panel
TEXT = "#374151"
LIGHT = {word: tone.light for word, tone in VERDICTS.items()}
"""Colours of marks on paper; the verdict also stands beside each row."""
PAGE_VERDICTS = dict.fromkeys(VERDICTS, "var(--open-text)") | {
    "better": "var(--better-text)",
    "worse": "var(--worse-text)",
    "tied": "var(--tied-text)",
}
"""Colours on a page, which follow the theme."""


def write(comparisons: Sequence[Comparison], path: Path) -> None:
    """Draw comparisons into a PNG or SVG file, by its name's end. Raises StorageError, ConfigError for no contrast."""
    if not any(comparison.contrasts for comparison in comparisons):
        raise ConfigError(f"{path} was not drawn: there is no metric in common.")
    write_picture(specification(comparisons), path)


def specification(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return a Vega-Lite specification: a panel for each candidate and unit, a row for each metric."""
    panels: list[dict[str, Any]] = []
    for table, contrasts in pair_tables(comparisons):
        by_unit: dict[str, list[dict[str, Any]]] = {}
        for (label, *_), contrast in zip(table.rows, contrasts, strict=True):
            words = contrast.word or ""
            if contrast.p_holm is not None:
                words += f", p {p_value(contrast.p_holm)}"
                if contrast.tests > 1:
                    words += " (Holm)"
            row = {"metric": label.text, "verdict": contrast.word or "none", "label": words}
            by_unit.setdefault(unit_of(contrast), []).append({**row, **contrast_ends(contrast)})
        title = table.title
        for unit, rows in by_unit.items():
            heading = {"text": title, "fontSize": 12}
            panels.append({"title": heading, "width": 420, **forest(rows, unit, TEXT, LIGHT)})
            title = ""
    return {
        "background": "white",
        "padding": 12,
        "data": {"values": []},
        "vconcat": panels,
        "spacing": 24,
        "config": {"font": "DejaVu Sans, Arial, sans-serif", "view": {"stroke": None}, "title": {"anchor": "start"}},
    }


def forest(rows: list[dict[str, Any]], unit: str, text: str, verdicts: Mapping[str, str]) -> dict[str, Any]:
    """Return a forest plot of rows {metric, effect, low, high, verdict, label}, without a width.

    `text` is the colour of words, and `verdicts` are those of marks.
    """
    y = {"field": "metric", "type": "nominal", "sort": None, "axis": AXIS}
    scale = {"domain": list(verdicts), "range": list(verdicts.values())}
    colour = {"field": "verdict", "type": "nominal", "scale": scale, "legend": None}
    x = {"type": "quantitative", "axis": {"title": f"difference, 95 % interval ({unit})", "tickCount": 7}}
    zero = {"mark": {"type": "rule", "color": text}, "encoding": {"x": {"datum": 0, "type": "quantitative"}}}
    ends = {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour}
    interval = {"transform": known("low"), "mark": {"type": "rule", "strokeWidth": 2}, "encoding": ends}
    mark = {"type": "point", "filled": True, "size": 60, "opacity": 1}
    point = {"mark": mark, "encoding": {"y": y, "x": {**x, "field": "effect"}, "color": colour}}
    words = {"y": y, "x": {"value": "width"}, "text": {"field": "label", "type": "nominal"}}
    verdict = {"mark": {"type": "text", "align": "left", "dx": 8, "color": text}, "encoding": words}
    return {"height": {"step": 24}, "data": {"values": rows}, "layer": [zero, interval, point, verdict]}


def unit_of(contrast: Contrast) -> str:
    if contrast.log_scale:
        return "% of the baseline"
    return {"fraction": "percentage points"}.get(contrast.unit, clean(contrast.unit))
