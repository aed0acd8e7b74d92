"""A figure of scaling: a panel over the size of the model and one over the training tokens, on logarithmic axes."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import StorageError
from emobench.leaderboard.stats.log_line import LogLine
from emobench.report.charts.vega_lite import Row, panel, picture, series_of, write_picture

Numbers = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The header and the rows of a table."""
STYLE = """body { font-family: sans-serif; margin: 2rem }
svg { max-width: 100%; height: auto }
td, th { padding: .2rem .8rem; text-align: left }"""
STEPS = 24
"""Points of a line's band."""
NOTE = "points: the mean over tasks, one for each seed; lines: least squares over log10(x), with their 95% bands"


def scaling_picture(title: str, metric: str, panels: Mapping[str, tuple[Sequence[Row], Mapping[str, LogLine]]]) -> Any:
    """Return the specification of a figure.

    A panel has its axis as its name, and points with `series`, `size` and `value` (a fraction), and the line of each
    series.
    """
    names = list(dict.fromkeys(name for points, _ in panels.values() for name in series_of(points)))
    drawn = [panel(name, list(_rows(*panels[name])), list(_layers(name, metric)), names) for name in panels]
    return picture(title, drawn, NOTE)


def write_page(drawing: Path, title: str, table: Numbers, path: Path) -> None:
    """Write a page with an SVG and a table of its numbers, which needs no network. Raises StorageError."""
    header, rows = table
    cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows)
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    text = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
{drawing.read_text("utf-8")}
<table><thead><tr>{head}</tr></thead><tbody>
{cells}</tbody></table>
</html>
"""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{path} could not be written: {error.strerror}. Name another folder with --plot."
        ) from error


def write_scaling(spec: Any, title: str, table: Numbers, stem: Path) -> list[Path]:
    """Write STEM.png, STEM.svg and STEM.html, and return them."""
    paths = [stem.with_suffix(end) for end in (".png", ".svg", ".html")]
    for path in paths[:2]:
        write_picture(spec, path, "Name another file with --plot.")
    write_page(paths[1], title, table, paths[2])
    return paths


def _rows(points: Sequence[Row], lines: Mapping[str, LogLine]) -> Iterator[dict[str, Any]]:
    for point in points:
        yield {"kind": "point", "series": point["series"], "x": point["size"], "y": 100 * point["value"]}
    sizes = [point["size"] for point in points]
    low, high = min(sizes), max(sizes)
    for name, line in lines.items():
        for place in range(STEPS + 1):
            x = low * (high / low) ** (place / STEPS)
            band = line.band(x) or (None, None)
            row = {"kind": "line", "series": name, "x": x, "y": 100 * line.at(x)}
            # An accuracy is no number below 0 or above 1, and the band of three sizes may be.
            shown = [None if end is None else 100 * min(max(end, 0.0), 1.0) for end in band]
            yield {**row, "low": shown[0], "high": shown[1]}


def _layers(name: str, metric: str) -> Iterator[dict[str, Any]]:
    x = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "axis": {"title": name, "tickCount": 5, "format": "~s"},
    }
    y = {"type": "quantitative", "scale": {"zero": False}, "axis": {"title": f"mean {metric} (%)", "tickCount": 5}}
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    kinds = [
        ("datum.kind == 'line' && isValid(datum.low)", {"type": "area", "opacity": 0.12}, band),
        ("datum.kind == 'line'", {"type": "line", "strokeWidth": 2}, {"x": x, "y": {**y, "field": "y"}}),
        (
            "datum.kind == 'point'",
            {"type": "point", "filled": True, "size": 45, "opacity": 0.9},
            {"x": x, "y": {**y, "field": "y"}},
        ),
    ]
    for chosen, mark, encoding in kinds:
        yield {"transform": [{"filter": chosen}], "mark": mark, "encoding": encoding}
