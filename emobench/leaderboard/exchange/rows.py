"""Entries as a long table, one line for each entry and metric: JSON Lines and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from emobench.leaderboard.render.csv_text import csv_text
from emobench.leaderboard.schema.entry import Entry, MetricSummary


def metric_rows(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """Return a flat mapping for each metric, then for each missing one, whose numbers are None.

    Fractions stay fractions; `ci95_low` and `ci95_high` are the interval's bounds.
    """
    for entry in entries:
        for name, metric in entry.metrics.items():
            yield {**_facts(entry, name), **_numbers(metric), "missing": None}
        for name, why in entry.missing.items():
            yield {**_facts(entry, name), **_numbers(None), "missing": why}


def to_json_lines(entries: Iterable[Entry]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in metric_rows(entries))


def to_csv(entries: Iterable[Entry]) -> str:
    """Return CSV with a header; lists are joined by spaces, and no text begins as a spreadsheet's formula does."""
    return csv_text([*_facts_names(), *_numbers(None), "missing"], metric_rows(entries))


def _facts(entry: Entry, name: str) -> dict[str, Any]:
    task, metric = name.split("/", 1)
    values = (
        *(entry.id, entry.kind, entry.provenance.created, entry.suite.name, entry.suite.version),
        *(entry.model.name, entry.model.source, entry.model.revision, entry.objective.label, list(entry.seeds)),
        *(task, metric, entry.protocols.get(task)),
    )
    return dict(zip(_facts_names(), values, strict=True))


def _facts_names() -> tuple[str, ...]:
    return (
        *("id", "kind", "created", "suite", "suite_version"),
        *("model", "source", "revision", "objective", "seeds"),
        *("task", "metric", "protocol"),
    )


def _numbers(metric: MetricSummary | None) -> dict[str, Any]:
    low, high = metric.ci95 if metric and metric.ci95 else (None, None)
    return {
        "mean": metric and metric.mean,
        "std": metric and metric.std,
        "values": list(metric.values) if metric else [],
        "n": metric and metric.n,
        "ci95_low": low,
        "ci95_high": high,
        "ci95_of": metric and metric.ci95_of,
        "higher_is_better": metric and metric.higher_is_better,
        "unit": metric and metric.unit,
        "flags": list(metric.flags) if metric else [],
    }
