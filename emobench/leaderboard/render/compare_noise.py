"""Where the noise of compared metrics comes from: a line for each metric whose samples were repeated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from emobench.config import to_plain
from emobench.leaderboard.schema.entry import ROUNDING, MetricSummary
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.stats.compare import Comparison, place
from emobench.leaderboard.stats.variance_components import KMEANS, SAMPLING, TEXTS, TRAINING

ABSENT = "–"
MOST_NAMED = 6
HEADER = ("metric", "training", "sampling", "k-means", "texts", "averaged over", "left")
EXPLAINED = (
    "Where the noise comes from: the standard deviation that one value would have if only its training seed, its "
    "sampling run, the seed of its k-means or its texts were drawn anew; of the rows compared, the root of their mean "
    "variance. A – was not repeated, or cannot be told from the others.",
    "averaged over: training seeds x sampling runs x k-means seeds. left: the standard error of a row's mean, in which "
    "these are averaged and the texts are not, or what its spread over seeds shows, if that is more; a difference of "
    "rows has less, as they share the texts. Of few seeds and runs these are rough estimates.",
)


@dataclass(frozen=True)
class NoiseTable:
    heading: str
    rows: tuple[tuple[str, ...], ...]


def noise_tables(comparisons: Sequence[Comparison]) -> list[NoiseTable]:
    """Return a table for each comparison that has metrics with components."""
    found = []
    for comparison in comparisons:
        rows = tuple(_row(metric, of) for metric, of in _known(comparison).items())
        if rows:
            found.append(NoiseTable(clean(f"Where the noise comes from · {place(comparison.baseline)}"), rows))
    return found


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
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    said = f"{', '.join(names[:MOST_NAMED])}{more}, which {'has' if len(names) == 1 else 'have'} one value a seed"
    return [f"Not in this table: {said}, so that nothing tells sources apart."]


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


def _row(metric: str, of: dict[str, MetricSummary]) -> tuple[str, ...]:
    summaries = list(of.values())
    unit = {"fraction": "points", "perplexity": "%"}.get(summaries[0].unit, summaries[0].unit)
    sources = (TRAINING, SAMPLING, KMEANS, TEXTS)
    deviations = [[s.components[name].sd for s in summaries if name in s.components] for name in sources]
    left = [s.left for s in summaries]
    draws = [{s.components[name].draws for s in summaries if name in s.components} for name in sources[:3]]
    over = " x ".join("-".join(map(str, sorted({min(of), max(of)}))) for of in draws if of)
    # A deviation of logarithms is relative as it is.
    least = ROUNDING * (1.0 if unit == "%" else max(abs(s.mean) for s in summaries))
    shown = [_shown(some, unit, least) for some in (*deviations, left)]
    return (clean(f"{metric} ({unit})"), *shown[:-1], over, shown[-1])


def _shown(deviations: Sequence[float], unit: str, least: float) -> str:
    """Return the root of the mean square with 2 digits, as points of fractions or percent of perplexities.

    What is not above `least`, float rounding, is 0.
    """
    if not deviations:
        return ABSENT
    pooled = math.sqrt(fmean(deviation**2 for deviation in deviations))
    if pooled <= least:
        return "0"
    # The deviation of a perplexity's logarithm; a wild one is no number that anyone reads.
    value = 100 * math.expm1(min(pooled, 50.0)) if unit == "%" else 100 * pooled if unit == "points" else pooled
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"
