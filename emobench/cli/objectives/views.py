"""How the facts, the checks and the times of objectives look in a terminal, whatever its width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emobench.cli.terminal.tables import TextTable

if TYPE_CHECKING:
    from emobench.testing import Outcome
    from emobench.testing.bench import BenchResult

SIGNS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}
WIDE = 100
"""Columns of a terminal in which a list has room for a description of each loss."""
MIB = 2**20


def listing(rows: Sequence[dict[str, Any]], *, wide: bool) -> list[Any]:
    """Return a table for each group of objectives, by level, with a line between them."""
    levels = ("statistics", "logits", "model", "")
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (levels.index(row["level"]), row["group"])):
        groups.setdefault(row["group"], []).append(row)
    parts = []
    for title, members in groups.items():
        # The last column is all that is known of an objective that does not load.
        columns = 4 if wide or not all(row["equation"] for row in members) else 3
        header = ("name", "parameters", "loss", "what")[:columns]
        parts += [TextTable(title, header, [_cells(row)[:columns] for row in members], ("name",)), ""]
    return parts


def checked(name: str, outcomes: Sequence[Outcome]) -> list[Any]:
    """Return a line for each check, what each failed one found, with the fix, and how many there are of each status."""
    table = Table.grid()
    for width in (8, 14, None):
        table.add_column(width=width, overflow="fold")
    for o in outcomes:
        text = o.promise + (f" ({o.found})" if o.status == "skipped" else "")
        table.add_row(SIGNS[o.status], Text(o.name), Text(text))
    counts = ", ".join(f"{n} {s}" for s in SIGNS if (n := sum(o.status == s for o in outcomes)))
    failures = [part for o in outcomes if o.status == "failed" for part in ("", _failure(o))]
    return [table, *failures, "", f"{name}: {counts}."]


def _failure(outcome: Outcome) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_row(Text(f"{outcome.name}:"), Text(outcome.found))
    if outcome.usually:
        table.add_row("", Text(f"Usually: {outcome.usually}"))
    return table


def shown(found: dict[str, Any]) -> list[Any]:
    """Return all that is known of an objective, and its weight where it is a term of a combination."""
    reads = found["statistics"] + [f"{name} (side data)" for name in found["side_data"]]
    slopes = f", slopes by {found['slopes']}" if found["slopes"] else ""
    rows = [
        *([("weight", found["weight"])] if "weight" in found else []),
        ("level", found["level"] + slopes),
        ("reads", ", ".join(reads) or f"the {found['level']}"),
        ("source", found["source"] or "unknown"),
        ("from", found["origin"] if found["origin"] == found["file"] else f"{found['origin']} ({found['file']})"),
        ("use", found["use"]),
    ]
    summary = "" if found["about"].startswith(found["summary"]) else f": {found['summary']}"
    title = Text.assemble((found["name"], "bold"), f" (version {found['version']})")
    texts = [Text(found["equation"], style="cyan"), Text(found["about"])]
    parameters = [_parameter(p) for p in found["parameters"]]
    return [
        title.append(summary),
        "",
        *(part for text in texts if text for part in (Padding(text, (0, 0, 0, 2)), "")),
        _labelled(rows),
        *(["", _labelled(parameters)] if parameters else []),
    ]


def measured(found: BenchResult) -> list[Any]:
    """Return the table of a report of `emobench objectives bench`, and what its columns mean."""
    numbers = ("ms", "spread", "x CE", "x mle", "MiB a step", "MiB held")
    rows = [
        (
            row.loss,
            f"{row.milliseconds:,.1f}",
            f"{row.spread:.0%}",
            f"{row.x_cross_entropy:.2f}",
            f"{row.x_mle:.2f}",
            f"{row.step_bytes / MIB:,.1f}",
            f"{row.held_bytes / MIB:,.1f}",
        )
        for row in found.losses
    ]
    table = TextTable("", ("loss", *numbers), rows, numbers, right=True)
    return [
        f"{found.tokens:,} tokens, vocabulary {found.vocabulary:,}, width {found.width:,}, {found.dtype}; "
        f"U/N {found.distinct_share:.2f} (distinct targets)",
        f"{found.device} ({found.hardware}), threads: {found.threads}",
        "",
        table,
        "",
        f"Head and loss, forward and backward: medians of {found.rounds} rounds in alternating order.",
        "x CE: over cross-entropy on whole logits; x mle: over -log q_t in the engine.",
        f"ms: {found.clock}. MiB a step: peak beyond inputs, dX and dW",
        f"({found.memory}). Held: frozen tensors, such as costs.",
        "Labels and side data (a teacher's hidden states) are prepared beforehand. Compare numbers of one table only.",
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    parameters = ", ".join(f"{p['name']}={p['default']}" for p in row["parameters"])
    built_in = not row["origin"] or row["origin"].startswith("emobench ")
    return [row["name"], parameters, row["equation"], row["summary"] + ("" if built_in else f" [{row['origin']}]")]


def _parameter(p: dict[str, Any]) -> tuple[str, str]:
    default = f" (default {p['default']})" if p["value"] != p["default"] else ""
    return f"{p['name']}: {p['type']} = {p['value']}{default}", p["help"] + (f" [{p['range']}]" if p["range"] else "")


def _labelled(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for label, text in rows:
        table.add_row(Text(label, style="bold"), Text(text))
    return table
