"""Where the noise of compared metrics comes from: a line for each metric whose samples were repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from emobench.config import to_plain
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.grid import ABSENT, Cell, Column, Grid, Label
from emobench.leaderboard.render.numbers import listed
from emobench.leaderboard.schema.entry import ROUNDING, MetricSummary
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.stats.compare import Comparison, place
from emobench.leaderboard.stats.variance_components import KMEANS, SAMPLING, TEXTS, TRAINING

COLUMNS = ("training", "sampling", "k-means", "texts", "averaged over", "left")
EXPLAINED = (
    "Where the noise comes from: the standard deviation that one value would have if only its training seed, its "
    "sampling run, the seed of its k-means or its texts were drawn anew; of the rows compared, the root of their mean "
    "variance. A – was not repeated, or cannot be told from the others.",
    "averaged over: training seeds x sampling runs x k-means seeds. left: the standard error of a row's mean, in which "
    "these are averaged and the texts are not, or what its spread over seeds shows, if that is more; a difference of "
    "rows has less, as they share the texts. Of few seeds and runs these are rough estimates.",
)


def noise_tables(comparisons: Sequence[Comparison]) -> list[Grid]:
    """Return a table for each comparison that has metrics with components."""
    return [_grid(comparison, known) for comparison in comparisons if (known := _known(comparison))]


def _grid(comparison: Comparison, known: dict[str, dict[str, MetricSummary]]) -> Grid:
    return Grid(
        title=clean(f"Where the noise comes from · {place(comparison.baseline)}"),
        corner="metric",
        turned="",
        rows=tuple(Label(clean(f"{metric} ({_unit(of)})")) for metric, of in known.items()),
        columns=tuple(Column("", name) for name in COLUMNS),
        cells=tuple(tuple(map(Cell, _row(list(of.values())))) for of in known.values()),
    )


def unrepeated(comparisons: Sequence[Comparison]) -> list[str]:
    """Return a sentence on the metrics of the tables' comparisons that are in no table, if there are any."""
    names = list(dict.fromkeys(
        contrast.metric
        for comparison in comparisons
        if (known := _known(comparison))
        for contrast in comparison.contrasts
        if contrast.metric not in known and contrast.metric in comparison.baseline.metrics
    ))  # fmt: skip
    if not names:
        return []
    have = "has" if len(names) == 1 else "have"
    return [
        f"Not in this table: {listed(names)}, which {have} one value per seed, so that no sources can be told apart."
    ]


def plain_components(comparison: Comparison) -> dict[str, Any]:
    """Return metric -> id of an entry -> its components, plain, of the metrics that are shown."""
    return {
        metric: {identity: to_plain(summary.components) for identity, summary in of.items()}
        for metric, of in _known(comparison).items()
    }


def _known(comparison: Comparison) -> dict[str, dict[str, MetricSummary]]:
    entries = {entry.id: entry for entry in (comparison.baseline, *comparison.candidates)}
    found: dict[str, dict[str, MetricSummary]] = {}
    for metric in dict.fromkeys(contrast.metric for contrast in comparison.contrasts):
        of = {key: e.metrics[metric] for key, e in entries.items() if metric in e.metrics}
        known = {key: summary for key, summary in of.items() if summary.components}
        found |= {metric: known} if known else {}
    return found


def _unit(of: dict[str, MetricSummary]) -> str:
    unit = next(iter(of.values())).unit
    return {"fraction": "points", "perplexity": "%"}.get(unit, unit)


def _row(summaries: Sequence[MetricSummary]) -> list[str]:
    sources = (TRAINING, SAMPLING, KMEANS, TEXTS)
    deviations = [[s.components[name].sd for s in summaries if name in s.components] for name in sources]
    draws = [{s.components[name].draws for s in summaries if name in s.components} for name in sources[:3]]
    over = " x ".join("-".join(map(str, sorted({min(of), max(of)}))) for of in draws if of)
    return [*(_pooled(some, summaries) for some in deviations), over, _pooled([s.left for s in summaries], summaries)]


def _pooled(deviations: Sequence[float], summaries: Sequence[MetricSummary]) -> str:
    """Return the root of the mean square; 0 where it is float rounding."""
    if not deviations:
        return ABSENT
    pooled, unit = math.sqrt(fmean(deviation**2 for deviation in deviations)), summaries[0].unit
    # A deviation of logarithms is relative as it is.
    least = ROUNDING * (1.0 if unit == "perplexity" else max(abs(s.mean) for s in summaries))
    return "0" if pooled <= least else figures.deviation(pooled, unit)
