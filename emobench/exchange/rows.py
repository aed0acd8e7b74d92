"""Entries as a long table, one line for each entry and metric: JSON Lines and CSV."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.report.render.csv_text import csv_text


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
    rows = list(metric_rows(entries))
    return csv_text(list(rows[0]) if rows else [], rows)


def _facts(entry: Entry, name: str) -> dict[str, Any]:
    task, metric = name.split("/", 1)
    return {
        "id": entry.id,
        "kind": entry.kind,
        "created": entry.provenance.created,
        "suite": entry.suite.name,
        "suite_version": entry.suite.version,
        "model": entry.model.name,
        "source": entry.model.source,
        "revision": entry.model.revision,
        "objective": entry.objective.label,
        "seeds": list(entry.seeds),
        "task": task,
        "metric": metric,
        "protocol": entry.protocols.get(task),
    }


def _numbers(metric: MetricSummary | None) -> dict[str, Any]:
    low, high = metric.ci95 if metric and metric.ci95 else (None, None)
    names = ("mean", "std", "values", "n", "ci95_low", "ci95_high", "ci95_of", "higher_is_better", "unit", "flags")
    found: dict[str, Any] = {name: getattr(metric, name, None) for name in names}
    found |= {"ci95_low": low, "ci95_high": high}
    return found | {name: list(found[name] or ()) for name in ("values", "flags")}
