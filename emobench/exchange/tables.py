"""Entries as tables for other tools: CSV, and the evaluation section of a Hugging Face model card."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import clean
from emobench.leaderboard.query.standings import View
from emobench.report.board_table import report
from emobench.report.tables import csv_text, markdown_text

Cells = dict[str, Any]
"""Cells of a row by the names of their columns."""


def metric_rows(entries: Iterable[Entry]) -> Iterator[Cells]:
    """Return a flat mapping for each metric, then for each missing one, whose numbers are None.

    Fractions stay fractions; `ci95_low` and `ci95_high` are the interval's bounds.
    """
    for entry in entries:
        for name, metric in entry.metrics.items():
            yield {**_facts(entry, name), **_numbers(metric), "missing": None}
        for name, why in entry.missing.items():
            yield {**_facts(entry, name), **_numbers(None), "missing": why}


def to_csv(entries: Iterable[Entry]) -> str:
    """Return CSV with a header; lists are joined by spaces, and no text begins as a spreadsheet's formula does."""
    rows = list(metric_rows(entries))
    return csv_text(list(rows[0]) if rows else [], rows)


def _facts(entry: Entry, name: str) -> Cells:
    task, metric = name.split("/", 1)
    facts: Cells = {
        "id": entry.id,
        "kind": entry.kind,
        "created": entry.provenance.created,
        "suite": entry.suite.name,
        "suite_version": entry.suite.version,
    }
    facts |= {
        "model": entry.model.name,
        "source": entry.model.source,
        "revision": entry.model.revision,
        "objective": entry.objective.label,
        "seeds": list(entry.seeds),
    }
    return {**facts, "task": task, "metric": metric, "protocol": entry.protocols.get(task)}


def _numbers(metric: MetricSummary | None) -> Cells:
    names = ("mean", "std", "values", "n", "ci95_low", "ci95_high", "ci95_of", "higher_is_better", "unit", "flags")
    numbers: Cells = {name: getattr(metric, name, None) for name in names}
    if metric and metric.ci95:
        numbers["ci95_low"], numbers["ci95_high"] = metric.ci95
    for name in ("values", "flags"):
        numbers[name] = list(numbers[name] or ())
    return numbers


TASK_TYPE = "text-generation"
"""What the Hub calls the task of a causal language model; every result of one stands under it."""


def card_name(entry: Entry) -> str:
    """Return the name of a card's file: model and objective, as far as a file may be called so, and the entry's id."""
    shown = re.sub(r"[^\w.,=()+-]+", "__", _title(entry))
    return f"{shown[:100]}__{entry.id[:6]}.md"


def model_card(entry: Entry) -> str:
    """Return a model card: YAML front matter with the entry's metrics as stored (fractions), then the board's table.

    A missing metric is below the table alone, with its reason: metadata has no place for a reason.
    """
    from huggingface_hub import EvalResult, ModelCardData

    results = []
    for name, metric in entry.metrics.items():
        task, kind = name.split("/", 1)
        given = {
            "unit": metric.unit,
            "seeds": len(entry.seeds) or None,
            "n": metric.n,
            "std": metric.std,
            "ci95": list(metric.ci95) if metric.ci95 else None,
            "ci95_of": metric.ci95_of,
        }
        arguments = {key: value for key, value in given.items() if value is not None}
        protocol = entry.protocols.get(task, "no protocol")
        result = EvalResult(
            task_type=TASK_TYPE,
            dataset_type=clean(task),
            dataset_name=clean(f"{task} ({protocol})"),
            metric_type=clean(kind),
            metric_name=clean(name),
            metric_value=metric.mean,
            metric_args=arguments,
        )
        results.append(result)
    data = ModelCardData(model_name=_title(entry), tags=["emobench"], eval_results=results)
    parts = ["---", data.to_yaml(), "---", "", f"# {markdown_text(_title(entry))}", ""]
    parts.append(f"Suite {markdown_text(str(entry.suite))}, entry `{entry.id}` of an emobench leaderboard.")
    parts += ["", report([entry], view=View(intervals=True)).markdown()]
    if entry.source.cite:
        parts += ["", f"Source: {markdown_text(clean(entry.source.cite))}"]
    return "\n".join(parts) + "\n"


def _title(entry: Entry) -> str:
    return clean(entry.model.name if entry.untrained else f"{entry.model.name}-{entry.objective.label}")
