"""All that an entry's own view shows: the entry, its metrics as text, and where their noise comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import stdev
from typing import Any, NamedTuple

from emobench.config import to_plain
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.grid import ABSENT
from emobench.leaderboard.schema.comparable import conditions
from emobench.leaderboard.schema.entry import ROUNDING, Entry, MetricSummary
from emobench.leaderboard.schema.private_paths import published
from emobench.leaderboard.site.text import interval, plain

SOURCES = ("training seed", "sampling", "k-means", "texts")
FLAGS = {
    "small_n": "few examples: shown, not ranked",
    "fewer_prompts": "fewer prompts than the limit asked for",
}


class Column(NamedTuple):
    """A metric of a suite: `title` is its heading in one line, `places` its decimals in an entry's group."""

    key: str
    title: str
    places: int


def details(entry: Entry, columns: Sequence[Column]) -> dict[str, Any]:
    """Return all that an entry holds, and the conditions that a comparable one shares, under names for people."""
    plain_entry = to_plain(entry)
    return {
        "entry": {**plain_entry, "source": published(plain_entry["source"])},
        "conditions": conditions(entry),
        "metrics": [_metric(entry, column) for column in columns if _is_listed(entry, column.key)],
        "noise": [
            _noise(entry.metrics[column.key], column)
            for column in columns
            if column.key in entry.metrics and entry.metrics[column.key].components
        ],
    }


def flag_text(flag: str) -> str:
    return FLAGS.get(flag, flag.replace("_", " "))


def _is_listed(entry: Entry, key: str) -> bool:
    return key in entry.metrics or key in entry.missing


def _metric(entry: Entry, column: Column) -> list[str]:
    """Return a row: title, mean, std, interval, what that covers, n, values; of what is missing title and reason."""
    if column.key not in entry.metrics:
        return [column.title, f"not measured: {entry.missing[column.key]}"]
    metric, places = entry.metrics[column.key], column.places
    times = figures.scale(metric.unit)
    covers = (metric.ci95_of if metric.ci95 else metric.ci95_missing) or "none"
    return [
        column.title,
        plain(metric.mean * times, places),
        ABSENT if metric.std is None else plain(metric.std * times, places),
        interval(metric.ci95, metric.unit, places),
        "; ".join([covers, *map(flag_text, metric.flags)]),
        ABSENT if metric.n is None else f"{metric.n:,}",
        "  ".join(plain(value * times, places) for value in metric.values),
    ]


def _noise(metric: MetricSummary, column: Column) -> list[str]:
    """Return a row: title, the deviation from each source, how many draws are averaged, and what is left."""
    parts: Mapping[str, Any] = metric.components
    log = metric.unit == "perplexity"
    values = [math.log(value) for value in metric.values] if log else list(metric.values)
    # Components are not all of the noise: the spread over seeds may show more.
    shown = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    left = max(shown, math.hypot(*(part.sd_of_mean for part in parts.values())))
    draws = " × ".join(str(parts[name].draws) for name in SOURCES[:3] if name in parts)
    each = [_deviation(parts[name].sd, metric) if name in parts else ABSENT for name in SOURCES]
    return [column.title, *each, draws, _deviation(left, metric)]


def _deviation(value: float, metric: MetricSummary) -> str:
    """Return a standard deviation; of perplexities, whose logarithms have it, in percent. Float rounding is none."""
    log = metric.unit == "perplexity"
    if value <= ROUNDING * (1 if log else abs(metric.mean)):
        return "0"
    return figures.deviation(value, metric.unit) + (" %" if log else "")
