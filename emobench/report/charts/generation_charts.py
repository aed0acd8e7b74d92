"""Pictures of generated texts, as Vega-Lite: divergence curves, histograms, and forward against reverse cross-entropy.

Each function takes plain rows, and returns a specification with a panel for each task or corpus
(`vega_lite.write_pictures`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from emobench.leaderboard.labels import clean
from emobench.report.charts.vega_lite import HUMAN, Row, axis, grouped, panel, picture, series_of, shape
from emobench.report.numbers import plain

FEWEST, MOST = 6, 24
"""Bars of a histogram, about: 2 n^(1/3) of its smallest series (Rice's rule), within these bounds."""


def scatter(points: Sequence[Row]) -> dict[str, Any]:
    """Draw forward against reverse cross-entropy, in nats per token.

    A point has `objective`, `corpus`, `forward`, `reverse`, and their intervals where they are known:
    `forward_low`, `forward_high`, `reverse_low`, `reverse_high` (or None).
    """
    rows = [{**point, "series": clean(point["objective"])} for point in points]
    series = series_of(rows)
    panels = []
    for corpus, own in grouped(rows, "corpus"):
        x = axis("forward", "forward: −Σ P log Q (nats per token)", _around(own, "forward"))
        y = axis("reverse", "reverse: −Σ Q log P (nats per token)", _around(own, "reverse"))
        across = {"x": {**x, "field": "forward_low"}, "x2": {"field": "forward_high"}, "y": y}
        upright = {"x": x, "y": {**y, "field": "reverse_low"}, "y2": {"field": "reverse_high"}}
        layers = [
            {"transform": [{"filter": f"isValid(datum.{name}_low)"}], "mark": _BAR, "encoding": encoding}
            for name, encoding in (("forward", across), ("reverse", upright))
        ]
        mark = {"type": "point", "filled": True, "size": 70, "opacity": 1}
        layers.append({"mark": mark, "encoding": {"x": x, "y": y, "shape": shape(series)}})
        panels.append(panel(corpus, own, layers, series))
    note = "P: the language that is known, or a surrogate model of the data; crosses: 95% intervals"
    return picture("Cross-entropy between the model (Q) and P", panels, note)


def divergence_curves(curves: Sequence[Row]) -> dict[str, Any]:
    """Draw MAUVE's divergence curves: thin ones as they were computed, and a thick one, the mean, for each series.

    A curve has `series`, `task`, `mauve` and its `points` [[x, y], ...], the same number for all: x is
    exp(-c KL(Q | R)) and y is exp(-c KL(P | R)) of generated texts Q, human texts P and their mixtures R (Pillutla et
    al., NeurIPS 2021), as mauve-text returns them.
    """
    rows = [{**curve, "series": clean(curve["series"])} for curve in curves]
    x = axis("x", "generated texts are human-like: exp(−c KL(Q | R))", (0, 1))
    y = axis("y", "human texts are covered: exp(−c KL(P | R))", (0, 1))
    series = series_of(rows)

    def lines(kind: str, width: float, opacity: float) -> dict[str, Any]:
        return {
            "transform": [{"filter": f"datum.kind == '{kind}'"}],
            "mark": {"type": "line", "strokeWidth": width, "opacity": opacity},
            "encoding": {"x": x, "y": y, "order": {"field": "place"}, "detail": {"field": "curve"}},
        }

    layers = [lines("one", 0.5, 0.25), lines("mean", 2, 1)]
    panels = []
    for task, own in grouped(rows, "task"):
        means = [
            f"{name} {plain(fmean([c['mauve'] for c in some]), 'score', 3)}" for name, some in grouped(own, "series")
        ]
        panels.append(panel(task, list(_points(own)), layers, series, subtitle=f"MAUVE: {', '.join(means)}"))
    note = "thin: one for each sampling run and k-means seed; thick: their mean"
    return picture("Divergence curves of generated against human texts", panels, note)


def histograms(samples: Sequence[Row], *, title: str, unit: str, counted: str, whole: bool = False) -> dict[str, Any]:
    """Draw how values are distributed, in percent of each series; `human` is a grey ground.

    A sample has `series`, `task` and `values`. `unit` is what they are in, `counted` what has them; `whole` values are
    counts.
    """
    rows = [{**sample, "series": clean(sample["series"])} for sample in samples]
    series = [name for name in series_of(rows) if name != HUMAN]
    ordered = [*series, HUMAN] if any(row["series"] == HUMAN for row in rows) else series
    panels = []
    for task, own in grouped(rows, "task"):
        bars = list(_bars(own, whole))
        x = axis("value", unit)
        y = axis("share", f"share of the {counted} (%)", (0, 1.05 * max(bar["share"] for bar in bars)))
        ground = {"type": "area", "interpolate": "step-after", "opacity": 0.35}
        outline = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.75}
        layers = [
            {"transform": [{"filter": f"datum.series {sign} '{HUMAN}'"}], "mark": mark, "encoding": {"x": x, "y": y}}
            for sign, mark in (("==", ground), ("!=", outline))
        ]
        panels.append(panel(task, bars, layers, ordered, symbol="square"))
    return picture(title, panels)


_BAR = {"type": "rule", "strokeWidth": 1.25, "opacity": 0.8}


def _around(points: Sequence[Row], name: str) -> tuple[float, float]:
    """Return bounds of an axis around values and intervals; equal values stand in the middle."""
    known = [point.get(f"{name}{end}") for point in points for end in ("", "_low", "_high")]
    low, high = (end(value for value in known if value is not None) for end in (min, max))
    room = max(0.08 * (high - low), 0.02)
    return low - room, high + room


def _points(curves: Sequence[Row]) -> Iterable[dict[str, Any]]:
    """Yield the points of curves, and of the mean curve of each series."""
    for series, own in grouped(curves, "series"):
        for number, curve in enumerate(own):
            for place, (x, y) in enumerate(curve["points"]):
                yield {"series": series, "kind": "one", "curve": number, "place": place, "x": x, "y": y}
        for place, alike in enumerate(zip(*(curve["points"] for curve in own), strict=True)):
            x, y = (fmean(numbers) for numbers in zip(*alike, strict=True))
            yield {"series": series, "kind": "mean", "curve": -1, "place": place, "x": x, "y": y}


def _bars(samples: Sequence[Row], whole: bool) -> Iterable[dict[str, Any]]:
    """Yield the steps of each series, over bars that all have in common, down to zero at both ends."""
    low = min(min(sample["values"]) for sample in samples)
    high = max(max(sample["values"]) for sample in samples)
    by_series = dict(grouped(samples, "series"))
    values_of = {series: np.concatenate([row["values"] for row in own]) for series, own in by_series.items()}
    bars = min(max(2 * min(map(len, values_of.values())) ** (1 / 3), FEWEST), MOST)
    width = _width((high - low) / bars, whole)
    edges = width * np.arange(low // width - 1, high // width + 3)
    shift = 0.5 if whole and width == 1 else 0.0  # a bar of one whole number stands around it
    for series, values in values_of.items():
        for edge, count in zip(edges[:-1], np.histogram(values, edges)[0], strict=True):
            value = float(edge) - shift
            # Where no value is below 0, the axis begins at 0, too.
            shown = max(value, 0.0) if low >= 0 else value
            yield {"series": series, "value": shown, "share": 100 * int(count) / len(values)}


def _width(least: float, whole: bool) -> float:
    """Return the next greater width of a bar that is 1, 2 or 5 times a power of ten, at least 1 for whole numbers."""
    least = max(least, 1.0 if whole else 1e-6)
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
