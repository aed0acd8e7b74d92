"""Where the noise of compared metrics comes from: a line for each metric whose samples were repeated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import MetricSummary
from emobench.leaderboard.labels import clean
from emobench.leaderboard.stats.compare import Comparison, place
from emobench.leaderboard.stats.summary import SOURCES
from emobench.report.render.grid import ABSENT, Cell, Column, Grid
from emobench.report.render.numbers import deviation

EXPLAINED = (
    "Where the noise comes from: the standard deviation that one value would have if only its training seed, its "
    "sampling run, the seed of its k-means or its texts were drawn anew. averaged over: training seeds x sampling runs "
    "x k-means seeds. left: the standard error of a row's mean, for these texts; a difference of rows has less. Of few "
    "seeds and runs these are rough estimates."
)


def noise_tables(comparisons: Sequence[Comparison]) -> list[Grid]:
    """Return a table for each comparison that has metrics with components."""
    heads = ("training", *SOURCES[1:], "averaged over", "left")
    return [
        Grid(
            title=clean(f"Where the noise comes from · {place(comparison.baseline)}"),
            corner="metric",
            turned="",
            rows=tuple(Cell(clean(f"{metric} ({_unit(of)})")) for metric, of in repeated.items()),
            columns=tuple(Column("", name) for name in heads),
            cells=tuple(tuple(map(Cell, noise_row(list(of.values())))) for of in repeated.values()),
        )
        for comparison in comparisons
        if (repeated := _repeated(comparison))
    ]


def plain_components(comparison: Comparison) -> dict[str, Any]:
    """Return metric -> id of an entry -> its components, plain, of the metrics that are shown."""
    return {
        metric: {identity: to_plain(summary.components) for identity, summary in of.items()}
        for metric, of in _repeated(comparison).items()
    }


def noise_row(summaries: Sequence[MetricSummary]) -> list[str]:
    """Return the deviation by each of `SOURCES`, the draws that are averaged over, and the standard error left.

    Of several rows' summaries a deviation is the root of the mean square.
    """
    parts = {name: [s.components[name] for s in summaries if name in s.components] for name in SOURCES}
    draws = [sorted({min(of), max(of)}) for name in SOURCES[:3] if (of := [part.draws for part in parts[name]])]
    over = " x ".join("-".join(map(str, of)) for of in draws)
    each = [_pooled([part.sd for part in parts[name]], summaries) for name in SOURCES]
    return [*each, over, _pooled([summary.left for summary in summaries], summaries)]


def _repeated(comparison: Comparison) -> dict[str, Mapping[str, MetricSummary]]:
    """Return metric -> id -> summary, of the metrics shown and the entries whose samples were repeated."""
    found: dict[str, Mapping[str, MetricSummary]] = {}
    for metric in dict.fromkeys(contrast.metric for contrast in comparison.contrasts):
        entries = [e for e in (comparison.baseline, *comparison.candidates) if metric in e.metrics]
        found[metric] = {e.id: e.metrics[metric] for e in entries if e.metrics[metric].components}
    return {metric: of for metric, of in found.items() if of}


def _unit(of: Mapping[str, MetricSummary]) -> str:
    unit = next(iter(of.values())).unit
    return {"fraction": "points", "perplexity": "%"}.get(unit, unit)


def _pooled(deviations: Sequence[float], summaries: Sequence[MetricSummary]) -> str:
    if not deviations:
        return ABSENT
    pooled = math.sqrt(fmean(one**2 for one in deviations))
    return deviation(pooled, summaries[0].unit, max(abs(summary.mean) for summary in summaries))
