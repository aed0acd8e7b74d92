"""Pictures of generated texts, as Vega-Lite: divergence curves, histograms, and forward against reverse cross-entropy.

Each function takes plain rows, and returns a specification with a panel for each task or corpus
(`vega_lite.write_pictures`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

import numpy as np

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean
from emobench.report.charts.vega_lite import HUMAN, LEGEND, Row, axis, grouped, known, panel, picture, series_of
from emobench.report.numbers import plain

BARS = 20
"""Bars of a histogram, about."""


def cross_entropy_points(label: str, entry: Entry, model: str = "") -> Iterator[dict[str, Any]]:
    """Yield a point of `scatter` for each task of an entry with both cross-entropies; `model` begins its corpus."""
    for task in entry.protocols:
        point: dict[str, Any] = {"objective": label, "corpus": f"{model}{task}"}
        for name in ("forward", "reverse"):
            if metric := entry.metrics.get(f"{task}/{name}_cross_entropy"):
                low, high = metric.ci95 or (None, None)
                point |= {name: metric.mean, f"{name}_low": low, f"{name}_high": high}
        if "forward" in point and "reverse" in point:
            yield point


def scatter(points: Sequence[Row]) -> dict[str, Any]:
    """Draw forward against reverse cross-entropy, in nats per token.

    A point has `objective`, `corpus`, `forward`, `reverse`, and their intervals if they are known: `forward_low`,
    `forward_high`, `reverse_low`, `reverse_high` (or None).
    """
    rows = [{**point, "series": clean(point["objective"])} for point in points]
    series = series_of(rows)
    bar = {"type": "rule", "strokeWidth": 1.25, "opacity": 0.8}
    mark = {"type": "point", "filled": True, "size": 70, "opacity": 1}
    panels = []
    for corpus, own in grouped(rows, "corpus"):
        x = axis("forward", "forward: −Σ P log Q (nats per token)", _around(own, "forward"))
        y = axis("reverse", "reverse: −Σ Q log P (nats per token)", _around(own, "reverse"))
        across = {"x": {**x, "field": "forward_low"}, "x2": {"field": "forward_high"}, "y": y}
        upright = {"x": x, "y": {**y, "field": "reverse_low"}, "y2": {"field": "reverse_high"}}
        scale = {"domain": list(series)}
        shape = {"field": "series", "type": "nominal", "scale": scale, "legend": LEGEND}
        layers = [
            {"transform": known("forward_low"), "mark": bar, "encoding": across},
            {"transform": known("reverse_low"), "mark": bar, "encoding": upright},
            {"mark": mark, "encoding": {"x": x, "y": y, "shape": shape}},
        ]
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
    series = series_of(rows)
    encoding = {
        "x": axis("x", "generated texts are human-like: exp(−c KL(Q | R))", (0, 1)),
        "y": axis("y", "human texts are covered: exp(−c KL(P | R))", (0, 1)),
        "order": {"field": "place"},
        "detail": {"field": "curve"},
    }
    thin = {"type": "line", "strokeWidth": 0.5, "opacity": 0.25}
    thick = {"type": "line", "strokeWidth": 2, "opacity": 1}
    layers = [
        {"transform": [{"filter": "datum.kind == 'one'"}], "mark": thin, "encoding": encoding},
        {"transform": [{"filter": "datum.kind == 'mean'"}], "mark": thick, "encoding": encoding},
    ]
    panels = []
    for task, own in grouped(rows, "task"):
        points, means = [], []
        for name, alike in grouped(own, "series"):
            means.append(f"{name} {plain(fmean(curve['mauve'] for curve in alike), 'score', 3)}")
            curves_SPX = np.array([curve["points"] for curve in alike])  # series' curves, points, x and y
            for number, curve_PX in enumerate([*curves_SPX, curves_SPX.mean(axis=0)]):
                kind = "one" if number < len(alike) else "mean"
                for place, (x, y) in enumerate(curve_PX.tolist()):
                    row = {"series": name, "kind": kind, "curve": number, "place": place}
                    points.append({**row, "x": x, "y": y})
        panels.append(panel(task, points, layers, series, f"MAUVE: {', '.join(means)}"))
    note = "thin: one for each sampling run and k-means seed; thick: their mean"
    return picture("Divergence curves of generated against human texts", panels, note)


def histograms(samples: Sequence[Row], *, title: str, unit: str, counted: str, whole: bool = False) -> dict[str, Any]:
    """Draw how values are distributed, in percent of each series; `human` is a grey ground.

    A sample has `series`, `task` and `values`, in a `unit`, of the things `counted`; `whole` values are counts.
    """
    rows = [{**sample, "series": clean(sample["series"])} for sample in samples]
    series = sorted(series_of(rows), key=lambda name: name == HUMAN)
    ground = {"type": "area", "interpolate": "step-after", "opacity": 0.35}
    outline = {"type": "line", "interpolate": "step-after", "strokeWidth": 1.75}
    panels = []
    for task, own in grouped(rows, "task"):
        bars = _bars(own, whole)
        highest = max(bar["share"] for bar in bars)
        encoding = {
            "x": axis("value", unit),
            "y": axis("share", f"share of the {counted} (%)", (0, 1.05 * highest)),
        }
        layers = [
            {"transform": [{"filter": f"datum.series == '{HUMAN}'"}], "mark": ground, "encoding": encoding},
            {"transform": [{"filter": f"datum.series != '{HUMAN}'"}], "mark": outline, "encoding": encoding},
        ]
        panels.append(panel(task, bars, layers, series))
    return picture(title, panels)


def _around(points: Sequence[Row], name: str) -> tuple[float, float]:
    """Return bounds of an axis around values and intervals; equal values stand in the middle."""
    values = []
    for point in points:
        for end in ("", "_low", "_high"):
            value = point.get(f"{name}{end}")
            if value is not None:
                values.append(value)
    room = max(0.08 * (max(values) - min(values)), 0.02)
    return min(values) - room, max(values) + room


def _bars(samples: Sequence[Row], whole: bool) -> list[dict[str, Any]]:
    """Return the steps of each series, over bars that all have in common, down to zero at both ends."""
    by_series = {}
    for name, own in grouped(samples, "series"):
        by_series[name] = np.concatenate([row["values"] for row in own])
    low = min(values.min() for values in by_series.values())
    high = max(values.max() for values in by_series.values())
    width, start = (high - low) / BARS or 1.0, low
    if whole:  # a bar of one whole number stands around it
        width, start = max(math.ceil(width), 1), low - 0.5
    edges = start + width * np.arange(-1, (high - start) // width + 3)
    steps = []
    for name, values in by_series.items():
        counts, _ = np.histogram(values, edges)
        for edge, count in zip(edges[:-1], counts, strict=True):
            value = float(edge)
            if low >= 0:  # the axis begins at 0, too
                value = max(value, 0.0)
            steps.append({"series": name, "value": value, "share": 100 * int(count) / len(values)})
    return steps
