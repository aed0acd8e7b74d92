"""What objectives teach, as a picture: weights of a target token, and the implied targets of example tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from emobench.leaderboard.labels import clean
from emobench.report.baseline import USUAL
from emobench.report.charts.vega_lite import LEGEND, Row, axis, grouped, panel, picture, series_of, stacked

ENTROPIES = (1.0, 2.0, 4.0)
"""Nats. Where no prediction has one of them, the line takes the nearest entropy; equal lines cover one another."""
CELL = {"type": "rect", "aria": False}
"""Without texts for screen readers, an SVG is a third as large."""
HIGHEST = 2.0
"""The weight of the last colour of a plane."""
TICKS = (-13.816, -9.21, -4.595, -2.197, 0, 2.197, 4.595)
"""Log-odds of the probabilities 1e-6, 1e-4, 0.01, 0.1, 0.5, 0.9 and 0.99."""
APART = {"scale": {"color": "independent", "strokeDash": "independent"}}
LABEL = "format(1 / (1 + exp(-datum.value)), datum.value < -5 ? '.0e' : '.3~r')"
NOTE = "the gradient of its logit, divided by MLE's; entropies: or the nearest ones that predictions can have"


def teaching_picture(weights: Sequence[Row], targets: Sequence[Row]) -> dict[str, Any]:
    """Return the picture of the rows of a `Teaching`: lines and planes of weights, and a panel for each token."""
    planes = []
    for name, rows in grouped(weights, "objective"):
        if name != USUAL:
            planes.append(_plane(clean(name), rows))
    above = picture("The weight of a token", [_lines(weights), *planes], NOTE)
    above |= {"columns": 4, "resolve": APART}
    tokens = [_token_panel(context, rows) for context, rows in grouped(targets, "context")]
    below = picture("Implied targets", tokens, "the target with which cross-entropy would have the same gradient")
    return {**stacked([above, below]), "resolve": APART}


def _lines(weights: Sequence[Row]) -> dict[str, Any]:
    """Return the panel of weights over probabilities: a line for each objective and entropy."""
    rows = []
    for name, own in grouped(weights, "objective"):
        for log_odds, column in grouped(own, "log_odds"):
            entropies = [row["entropy"] for row in column]
            values = [row["weight"] for row in column]
            for entropy in ENTROPIES:
                weight = float(np.interp(entropy, entropies, values))
                rows.append({"series": clean(name), "log_odds": log_odds, "entropy": entropy, "weight": weight})
    dash = {"field": "entropy", "type": "nominal", "legend": {**LEGEND, "title": "entropy (nats)", "orient": "top"}}
    encoding = {"x": _probability("log_odds"), "y": axis("weight", "weight (MLE: 1)"), "strokeDash": dash}
    layer = {"mark": {"type": "line", "strokeWidth": 2}, "encoding": encoding}
    return panel("All objectives", rows, [layer], series_of(rows), "over the probability")


def _plane(name: str, weights: Sequence[Row]) -> dict[str, Any]:
    """Return the panel of an objective's weights over probability and entropy."""
    rows = []
    for _, column in grouped(weights, "log_odds"):
        for below, above in pairwise(column):
            middle = below["log_odds"]
            cell = {"left": middle - 0.5, "right": middle + 0.5, "low": below["entropy"], "high": above["entropy"]}
            rows.append({**cell, "weight": (below["weight"] + above["weight"]) / 2})
    scale = {"domain": [0, HIGHEST], "scheme": "viridis", "clamp": True}
    legend = {"title": f"weight, up to {HIGHEST:g}", "orient": "bottom"}
    encoding = {
        "x": _probability("left"),
        "x2": {"field": "right"},
        "y": axis("low", "entropy of the prediction (nats)"),
        "y2": {"field": "high"},
        "color": {"field": "weight", "type": "quantitative", "scale": scale, "legend": legend},
    }
    return panel(name, rows, [{"mark": CELL, "encoding": encoding}], [name], "over probability and entropy")


def _probability(field: str) -> dict[str, Any]:
    """Return an axis of log-odds with the probabilities as labels, so that both ends have room."""
    x = axis(field, "probability of the target", (-14.5, 7.5))
    x["axis"] |= {"values": TICKS, "tickCount": len(TICKS), "labelExpr": LABEL, "labelOverlap": False}
    return x


def _token_panel(context: str, targets: Sequence[Row]) -> dict[str, Any]:
    """Return the panel of a token: the prediction and the implied targets of vocabulary items."""
    rows = []
    for row in targets:
        rows.append({"token": shown_token(row["token"]), "series": clean(row["series"]), "share": row["share"]})
    series = series_of(rows)
    y = {"field": "token", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 120}}
    offset = {"field": "series", "type": "nominal", "sort": series}
    encoding = {"x": axis("share", "share"), "y": y, "yOffset": offset}
    layer = {"mark": "bar", "encoding": encoding}
    return panel(shown_token(targets[0]["target"]), rows, [layer], series, f"after … {clean(context[-36:])}")


def shown_token(token: str) -> str:
    """Return a token of a vocabulary with its space as a dot in the middle of the line."""
    return clean(token.replace("Ġ", "·").replace("▁", "·").replace("Ċ", "\\n"))
