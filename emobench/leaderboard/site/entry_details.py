"""All that an entry's own view shows: the entry, its metrics as text, and where their noise comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from emobench.config import to_plain
from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.render.grid import ABSENT
from emobench.leaderboard.render.noise_table import noise_row
from emobench.leaderboard.schema.comparable import conditions
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.private_paths import published

FLAGS = {"small_n": "few examples: shown, not ranked", "fewer_prompts": "fewer prompts than the limit asked for"}


class MetricColumn(NamedTuple):
    """A metric of a suite: `title` is its heading in one line, `places` its decimals in an entry's group."""

    key: str
    title: str
    places: int


def details(entry: Entry, columns: Sequence[MetricColumn]) -> dict[str, Any]:
    """Return all that an entry holds, and the conditions that a comparable one shares, under names for people."""
    plain_entry = to_plain(entry)
    repeated = [c for c in columns if c.key in entry.metrics and entry.metrics[c.key].components]
    return {
        "entry": {**plain_entry, "source": published(plain_entry["source"])},
        "conditions": conditions(entry),
        "metrics": [_metric(entry, c) for c in columns if c.key in entry.metrics or c.key in entry.missing],
        "noise": [[column.title, *noise_row([entry.metrics[column.key]])] for column in repeated],
    }


def flag_text(flag: str) -> str:
    return FLAGS.get(flag, flag.replace("_", " "))


def _metric(entry: Entry, column: MetricColumn) -> list[str]:
    """Return a row: title, mean, std, interval, what that covers, n, values; of what is missing title and reason."""
    metric = entry.metrics.get(column.key)
    if metric is None:
        return [column.title, f"not measured: {entry.missing[column.key]}"]
    covers = (metric.ci95_of if metric.ci95 else metric.ci95_missing) or "none"
    return [
        column.title,
        figures.plain(metric.mean, metric.unit, column.places),
        ABSENT if metric.std is None else figures.plain(metric.std, metric.unit, column.places),
        figures.interval_of(metric, column.places),
        "; ".join([covers, *map(flag_text, metric.flags)]),
        ABSENT if metric.n is None else f"{metric.n:,}",
        "  ".join(figures.plain(value, metric.unit, column.places) for value in metric.values),
    ]
