"""Wins, ties and losses as bars, one for each model, judge and seed, as in Figures 3 to 6 of the EMO paper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.report.charts.vega_lite import picture, write_picture
from emobench.report.palette import FILLS
from emobench.report.paper_table import Duel

WIDTH, STEP = 420, 30
"""Points of a bar's length, and of its line."""
OUTCOMES = {"win": FILLS["better"].light, "tie": FILLS["even"].light, "loss": FILLS["worse"].light}


def write_duels(title: str, duels: Sequence[Duel], path: Path) -> None:
    """Draw them into an SVG or PNG file, by its name's end. Raises StorageError, ConfigError for nothing to draw."""
    if not duels:
        raise ConfigError(f"{path} was not drawn: no judge gave enough verdicts.")
    write_picture(bars(title, duels), path, "Name another file with --plot.")


def bars(title: str, duels: Sequence[Duel]) -> dict[str, Any]:
    """Return the specification: a bar for each model, judge and seed, in three parts with their counts."""
    rows = [row for duel in duels for row in _parts(duel)]
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
    panel = {"width": WIDTH, "height": {"step": STEP}, "data": {"values": rows}, "layer": [bar, text]}
    return picture(clean(title), [panel])


def _parts(duel: Duel) -> list[dict[str, Any]]:
    counts = (duel.wins, duel.ties, duel.losses)
    total, begin, found = sum(counts) or 1, 0, []
    for outcome, count in zip(OUTCOMES, counts, strict=True):
        end = begin + count
        low, high = 100 * begin / total, 100 * end / total
        label = clean(f"{duel.subject}: {duel.row} against {duel.baseline}, {duel.label}")
        found.append(
            {"label": label, "outcome": outcome, "count": count, "from": low, "to": high, "middle": (low + high) / 2}
        )
        begin = end
    return found
