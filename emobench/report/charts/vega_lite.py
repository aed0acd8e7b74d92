"""What charts share: colours, axes, panels with one legend, and how they become files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import StorageError
from emobench.leaderboard.labels import clean
from emobench.report.palette import GREY, on_paper

HUMAN = "human"
"""A series that is drawn in grey."""
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
SIDE, COLUMNS, SCALE = 260, 3, 3
"""Points of a panel's side, panels in a row, and pixels for each point."""
LONGEST = 48
"""Letters of a line, no wider than a panel."""

LEGEND = {"title": None, "orient": "bottom", "labelLimit": 320, "symbolOpacity": 1}

Row = Mapping[str, Any]


def write_pictures(picture: Mapping[str, Any], folder: Path, name: str) -> list[Path]:
    """Write a picture as NAME.png and NAME.svg, with fonts that come with vl-convert; raises StorageError."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        write_picture(picture, path, "Name another folder with --out DIR.")
    return paths


def write_picture(picture: Mapping[str, Any], path: Path, hint: str) -> None:
    """Write a picture as PNG or SVG, by the name's end. Raises StorageError, which ends in `hint`."""
    import vl_convert

    spec = dict(picture)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".png":
            path.write_bytes(vl_convert.vegalite_to_png(spec, scale=SCALE))
        else:
            path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}. {hint}") from error


def axis(field: str, title: str, domain: tuple[float, float] | None = None) -> dict[str, Any]:
    scale = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    return {"field": field, "type": "quantitative", "axis": {"title": title, "tickCount": 5}, "scale": scale}


def series_of(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


def _colour(series: Sequence[str], symbol: str | None) -> dict[str, Any]:
    colours = dict(zip(series, on_paper(series), strict=True)) | {HUMAN: GREY.light}
    own = [colours[name] for name in series]
    legend = {**LEGEND, **({"symbolType": symbol} if symbol else {})}
    return {"field": "series", "type": "nominal", "scale": {"domain": list(series), "range": own}, "legend": legend}


def shape(series: Sequence[str]) -> dict[str, Any]:
    scale = {"domain": list(series), "range": [SHAPES[i % len(SHAPES)] for i in range(len(series))]}
    return {"field": "series", "type": "nominal", "scale": scale, "legend": LEGEND}


def panel(
    title: str,
    rows: Sequence[Row],
    layers: Sequence[Mapping[str, Any]],
    series: Sequence[str],
    *,
    subtitle: str = "",
    symbol: str | None = None,
) -> dict[str, Any]:
    heading: dict[str, Any] = {"text": clean(title), "fontSize": 12, "fontWeight": "bold", "anchor": "middle"}
    if subtitle:
        heading |= {"subtitle": textwrap.wrap(subtitle, LONGEST), "subtitleFontSize": 10, "subtitleColor": "#4b5563"}
    colour = _colour(series, symbol)
    return {
        "title": heading,
        "width": SIDE,
        "height": SIDE,
        "data": {"values": list(rows)},
        "layer": [{**layer, "encoding": {**layer["encoding"], "color": colour}} for layer in layers],
    }


def picture(title: str, panels: Sequence[Mapping[str, Any]], note: str = "") -> dict[str, Any]:
    """Return a specification of panels under a title; `note`, below it, says what the marks are."""
    below = (
        {"subtitle": textwrap.wrap(note, LONGEST), "subtitleFontSize": 11, "subtitleColor": "#4b5563"} if note else {}
    )
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "padding": 12,
        "title": {"text": title, "fontSize": 13, "anchor": "middle", "offset": 12, **below},
        "concat": list(panels),
        "columns": COLUMNS,
        "spacing": 28,
        "resolve": {"scale": {"color": "shared", "shape": "shared"}},
        "config": {
            "font": "Liberation Sans, Arial, Helvetica, sans-serif",
            "view": {"stroke": "#d1d5db"},
            "axis": {"labelFontSize": 10, "titleFontSize": 11, "titleFontWeight": "normal", "gridColor": "#eef0f2"},
            "legend": {"labelFontSize": 11, "columns": 2 * min(len(panels), COLUMNS)},
        },
    }


def grouped(rows: Iterable[Row], key: str) -> list[tuple[str, list[Row]]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return list(found.items())
