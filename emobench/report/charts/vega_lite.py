"""What charts share: colours, axes, panels with one legend, and how they become files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, StorageError
from emobench.leaderboard.labels import clean
from emobench.report.palette import GREY, on_paper

HUMAN, PREDICTION = "human", "prediction"
"""Series that are drawn in grey."""
SIDE, COLUMNS, SCALE = 260, 3, 3
"""Points of a panel's side, panels in a row, and pixels for each point."""
SUFFIXES = (".png", ".svg", ".pdf")
WHOLE = ("$schema", "background", "padding", "config")
"""Fields of a picture that its parts cannot have."""
LONGEST = 48
"""Letters of a line, no wider than a panel."""

LEGEND = {"title": None, "orient": "bottom", "labelLimit": 320, "symbolOpacity": 1}

Row = Mapping[str, Any]


def write_pictures(picture: dict[str, Any], folder: Path, name: str) -> list[Path]:
    """Write a picture as NAME.png and NAME.svg, with fonts that come with vl-convert; raises StorageError."""
    paths = [folder / f"{name}.png", folder / f"{name}.svg"]
    for path in paths:
        write_picture(picture, path)
    return paths


def write_picture(picture: dict[str, Any], path: Path) -> None:
    """Write a picture as PNG, SVG or PDF, by the name's end. Raises StorageError."""
    import vl_convert

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix.lower() == ".png":
            path.write_bytes(vl_convert.vegalite_to_png(picture, scale=SCALE))
        elif path.suffix.lower() == ".pdf":
            path.write_bytes(vl_convert.vegalite_to_pdf(picture))
        else:
            path.write_text(vl_convert.vegalite_to_svg(picture), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{path} could not be written: {error.strerror}. Name another place.") from error


def require_picture(path: Path | None, option: str) -> None:
    """Raise ConfigError unless a file's name is one of a picture."""
    if path is not None and path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{option} {path}: expected the name of a PNG, SVG or PDF file, such as {path.stem}.pdf.")


def stacked(pictures: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return pictures (see `picture`) below one another, as one."""
    parts = []
    for one in pictures:
        parts.append({name: value for name, value in one.items() if name not in WHOLE})
    shared = {name: value for name, value in pictures[0].items() if name in WHOLE}
    return {**shared, "vconcat": parts, "spacing": 40, "resolve": {"scale": {"color": "independent"}}}


def axis(field: str, title: str, domain: tuple[float, float] | None = None) -> dict[str, Any]:
    scale = {"zero": False} if domain is None else {"domain": list(domain), "nice": False}
    return {"field": field, "type": "quantitative", "axis": {"title": title, "tickCount": 5}, "scale": scale}


def known(field: str) -> list[dict[str, str]]:
    """Return the transform that keeps rows with a value."""
    return [{"filter": f"isValid(datum.{field})"}]


def series_of(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row["series"] for row in rows))


def panel(
    title: str,
    rows: Sequence[Row],
    layers: Sequence[Mapping[str, Any]],
    series: Sequence[str],
    subtitle: str = "",
) -> dict[str, Any]:
    """Return a panel; each series has the colour of its objective, unless a layer has colours of its own."""
    colours = dict(zip(series, on_paper(series), strict=True)) | dict.fromkeys((HUMAN, PREDICTION), GREY.light)
    scale = {"domain": list(series), "range": [colours[name] for name in series]}
    colour = {"field": "series", "type": "nominal", "scale": scale, "legend": LEGEND}
    drawn = []
    for layer in layers:
        drawn.append({**layer, "encoding": {"color": colour, **layer["encoding"]}})
    heading = {"text": clean(title), "fontSize": 12, "fontWeight": "bold", "anchor": "middle", **_below(subtitle, 10)}
    return {"title": heading, "width": SIDE, "height": SIDE, "data": {"values": list(rows)}, "layer": drawn}


def _below(text: str, size: int) -> dict[str, Any]:
    """Return the fields of a title for a text below it."""
    if not text:
        return {}
    return {"subtitle": textwrap.wrap(text, LONGEST), "subtitleFontSize": size, "subtitleColor": "#4b5563"}


def picture(title: str, panels: Sequence[Mapping[str, Any]], note: str = "") -> dict[str, Any]:
    """Return a specification of panels under a title; `note`, below it, says what the marks are."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "padding": 12,
        "title": {"text": title, "fontSize": 13, "anchor": "middle", "offset": 12, **_below(note, 11)},
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
    by_value: dict[str, list[Row]] = {}
    for row in rows:
        by_value.setdefault(row[key], []).append(row)
    return list(by_value.items())
