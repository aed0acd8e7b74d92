"""The charts of a board's page as Vega-Lite templates: differences, trade-off, metrics, curves and scaling.

A text "$name" in a template stands for a value that the page fills in, such as "$rows", the rows of its table.
Colours are variables of `site/assets/page.css`, so that a chart follows the theme without being drawn again.
"""

from __future__ import annotations

from typing import Any

from emobench.report.charts.compare_chart import forest
from emobench.report.palette import VERDICTS

TEXT, MUTED, LINE = "var(--text)", "var(--muted)", "var(--line)"
PAGE_VERDICTS = dict.fromkeys(VERDICTS, "var(--open-text)") | {
    word: f"var(--{word}-text)" for word in ("better", "worse", "tied")
}
FONT = "system-ui, sans-serif"
DASHES = ([1, 0], [8, 4], [2, 3], [8, 3, 2, 3], [14, 4], [4, 4], [14, 3, 2, 3], [1, 4])
"""Each series has dashes of its own, so that a line shows through another that lies on it."""

IN_PLACE = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
SERIES = {"domain": "$names", "range": "$colours"}


def page_charts() -> dict[str, Any]:
    """Return the templates by name, and under "config" what they share."""
    return {
        "config": _config(),
        "metric": metric(),
        "curves": curves(),
        "scaling": scaling(),
        "trade_off": trade_off(),
        "forest": {**forest("$rows", "$unit", TEXT, PAGE_VERDICTS), **IN_PLACE, "height": "$height"},
    }


def metric() -> dict[str, Any]:
    """Return the bars of one metric: rows {name, mean, low, high, end, text, interval}. Bars begin at 0."""
    y = {"field": "name", "type": "nominal", "sort": None}
    y["axis"] = {"title": None, "domain": False, "ticks": False, "labelColor": TEXT, "labelLimit": 160}
    percent = "fraction && datum.value > 100 ? '' : datum.label"
    axis = {"title": None, "tickCount": 4, "grid": False, "labelExpr": percent}
    x = {"field": "mean", "type": "quantitative", "scale": {"domain": "$domain", "nice": False}, "axis": axis}
    color = {"field": "name", "type": "nominal", "scale": SERIES, "legend": None}
    tooltip = _tips(name="objective", text="$title", interval="95 % interval")
    known = {"transform": [{"filter": "isValid(datum.low)"}]}
    tick = {"type": "tick", "thickness": 1.6, "size": 9, "color": TEXT}
    return {
        "params": [{"name": "fraction", "value": "$fraction"}],
        "title": "$title",
        **IN_PLACE,
        "height": "$height",
        "data": {"values": "$rows"},
        "encoding": {"y": y},
        "layer": [
            {
                "mark": {"type": "bar", "height": 15, "opacity": 0.85, "cornerRadiusEnd": 2},
                "encoding": {"x": x, "color": color, "tooltip": tooltip},
            },
            {
                **known,
                "mark": {"type": "rule", "strokeWidth": 1.6, "color": TEXT},
                "encoding": {"x": _quantity("low"), "x2": {"field": "high"}},
            },
            *({**known, "mark": tick, "encoding": {"x": _quantity(end)}} for end in ("low", "high")),
            {
                "mark": {"type": "text", "align": "left", "dx": 6, "fontSize": 12, "color": TEXT},
                "encoding": {"x": _quantity("end"), "text": {"field": "text"}},
            },
        ],
    }


def curves() -> dict[str, Any]:
    """Return training curves of points {name, seed, step, value}; the seed "mean" is drawn over the seeds' lines."""
    legend = {"symbolType": "stroke", "symbolSize": 900}
    named = {"field": "name", "type": "nominal", "title": None, "legend": legend}

    def lines(keep: str, mark: dict[str, Any]) -> dict[str, Any]:
        dashes = {**named, "scale": {"domain": "$names", "range": list(DASHES)}}
        return {
            "transform": [{"filter": keep}],
            "mark": {"type": "line", **mark},
            "encoding": {"detail": {"field": "seed"}, "strokeDash": dashes},
        }

    return {
        "description": "Training curves of $title",
        **IN_PLACE,
        "height": 280,
        "data": {"values": "$rows"},
        "encoding": {
            "x": _quantity("step", title="optimizer step", axis={"grid": False, "tickCount": 8}),
            "y": _quantity("value", title="$title", scale={"zero": False}),
            "color": {**named, "scale": SERIES},
            "tooltip": _tips(name="objective", seed="seed", step="step", value="$title"),
        },
        "layer": [
            lines("datum.seed !== 'mean'", {"strokeWidth": 1, "opacity": 0.3}),
            lines("datum.seed === 'mean'", {"strokeWidth": 2.2, "point": "$point"}),
        ],
    }


def scaling() -> dict[str, Any]:
    """Return one metric against `x` on a logarithmic scale: points {name, x, mean, low, high, text, model, ...}."""
    y = {"scale": {"zero": False}, "title": "$y"}
    axis = {"format": "~s", "labelExpr": "replace(datum.label, 'G', 'B')", "grid": False, "tickCount": 6}
    tooltip = _tips(name="objective", model="model", shown="$x", text="$y", interval="95 % interval")
    shape = {"field": "name", "type": "nominal", "scale": {"domain": "$names"}, "title": None}
    return {
        "description": "$y against $x",
        **IN_PLACE,
        "height": 280,
        "data": {"values": "$rows"},
        "encoding": {
            "x": _quantity("x", scale={"type": "log", "nice": False, "padding": 24}, title="$x", axis=axis),
            "color": {"field": "name", "type": "nominal", "scale": SERIES, "title": None},
        },
        "layer": [
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 1.4, "opacity": 0.7},
                "encoding": {"y": _quantity("low", **y), "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "strokeWidth": 2, "opacity": "$line_opacity"},
                "encoding": {"y": _quantity("mean", **y)},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {"y": _quantity("mean", **y), "shape": shape, "tooltip": tooltip},
            },
        ],
    }


def trade_off() -> dict[str, Any]:
    """Return one metric against another: points {name, x, x_low, x_high, x_text, y, ...}, named where they stand."""
    tooltip = _tips(name="objective", x_text="$x", y_text="$y")
    axis = {"tickCount": 6, "grid": False, "domain": True}
    x = {"title": "$x", "scale": {"type": "$x_type", "zero": "$x_zero", "nice": False, "padding": 70}, "axis": axis}
    y = {"title": "$y", "scale": {"type": "$y_type", "zero": "$y_zero", "nice": False, "padding": 24}, "axis": axis}
    color = {"field": "name", "type": "nominal", "scale": SERIES, "legend": None}
    at = {"x": _quantity("x", **x), "y": _quantity("y", **y)}

    def rule(side: str, along: dict[str, Any]) -> dict[str, Any]:
        across = {**at, side: _quantity(f"{side}_low", **along), f"{side}2": {"field": f"{side}_high"}}
        known = {"filter": f"isValid(datum.{side}_low)"}
        return {"transform": [known], "mark": {"type": "rule", "strokeWidth": 1.6, "opacity": 0.6}, "encoding": across}

    return {
        "description": "$y against $x",
        **IN_PLACE,
        "height": 340,
        "data": {"values": "$rows"},
        "encoding": {"color": color},
        "layer": [
            rule("x", x),
            rule("y", y),
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {**at, "tooltip": tooltip},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 9, "dy": -10, "fontSize": 12},
                "encoding": {**at, "text": {"field": "shown"}, "color": {"value": TEXT}},
            },
        ],
    }


def _config() -> dict[str, Any]:
    labels = {"labelColor": MUTED, "labelFont": FONT, "labelFontSize": 12, "labelLimit": 220}
    titles = {"titleColor": MUTED, "titleFont": FONT, "titleFontSize": 12, "titleFontWeight": "normal"}
    lines = {"gridColor": LINE, "domainColor": LINE, "tickColor": LINE}
    title = {"color": TEXT, "font": FONT, "fontSize": 13, "fontWeight": 600, "anchor": "start", "offset": 8}
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": {**labels, **titles, **lines},
        "legend": {
            **labels,
            **titles,
            "orient": "top",
            "symbolStrokeWidth": 3,
            "symbolOpacity": 1,
            "columns": {"expr": "max(1, floor(width / 200))"},
        },
        "title": title,
        "text": {"font": FONT},
    }


def _quantity(field: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", **more}


def _tips(**titles: str) -> list[dict[str, str]]:
    """Return a tooltip's lines: field -> title."""
    return [{"field": field, "title": title, "type": "nominal"} for field, title in titles.items()]
