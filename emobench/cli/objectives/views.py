"""How the facts, the checks and the times of objectives look in a terminal, whatever its width."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emobench.cli.console import plain_table
from emobench.cli.objectives.facts import LEVELS

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from emobench.testing import Outcome

SIGNS = {"ok": "ok", "failed": "FAILED", "skipped": "skipped"}
WIDE = 100
"""Columns of a terminal from which on a list has room to say in words what a loss is."""
MIB = 2**20


@dataclass(frozen=True)
class _Group:
    """The objectives under one title."""

    title: str
    rows: Sequence[dict[str, Any]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # The words are all that is known of one that does not load.
        narrow = options.max_width < WIDE and all(row["equation"] for row in self.rows)
        header = ["name", "parameters", "loss", "what"][: 3 if narrow else 4]
        yield plain_table(self.title, header, [_cells(row)[: len(header)] for row in self.rows], ("name",))


def listing(rows: Sequence[dict[str, Any]]) -> list[Any]:
    """Return a table for each group of objectives, by level, with a line between them."""
    levels = [*LEVELS, ""]
    titles = dict.fromkeys(r["group"] for r in sorted(rows, key=lambda r: (levels.index(r["level"]), r["group"])))
    return [part for t in titles for part in (_Group(t, [r for r in rows if r["group"] == t]), "")]


def checked(name: str, outcomes: Sequence[Outcome]) -> list[Any]:
    """Return a line for each check, one for all that a failed one leaves out, and what was found, with the fix."""
    table = Table.grid()
    for width in (8, 14, None):
        table.add_column(width=width, overflow="fold")
    failed = [o for o in outcomes if o.status == "failed"]
    behind = {f.name: [o for o in outcomes if o.status == "skipped" and f"`{f.name}`" in o.found] for f in failed}
    left_out = [o for those in behind.values() for o in those]
    for o in outcomes:
        if o not in left_out:
            text = o.promise + (f" ({o.found})" if o.status == "skipped" else "")
            table.add_row(SIGNS[o.status], Text(o.name), Text(text))
    skipped = [f"skipped {len(those)} more: they stand on `{gate}`" for gate, those in behind.items() if those]
    counts = ", ".join(f"{n} {s}" for s in SIGNS if (n := sum(o.status == s for o in outcomes)))
    said = [part for o in failed for part in ("", _failure(o))]
    return [table, *skipped, *said, "", f"{name}: {counts}."]


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
        ("source", found["source"] or "not said"),
        ("from", found["origin"] if found["origin"] == found["file"] else f"{found['origin']} ({found['file']})"),
        ("use", found["use"]),
    ]
    # Where the text begins with it, it is not said twice.
    said = found["summary"] and not found["about"].startswith(found["summary"])
    title = Text.assemble((found["name"], "bold"), f" (version {found['version']})")
    texts = [Text(found["equation"], style="cyan"), Text(found["about"])]
    parameters = [_parameter(p) for p in found["parameters"]]
    return [
        title.append(f": {found['summary']}" if said else ""),
        "",
        *(part for text in texts if text for part in (Padding(text, (0, 0, 0, 2)), "")),
        _labelled(rows),
        *(["", _labelled(parameters)] if parameters else []),
    ]


def measured(found: Any) -> list[Any]:
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
    table = plain_table("", ("loss", *numbers), rows, numbers, right=True)
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
        "Labels and side data (a teacher's hidden states) are prepared beforehand.",
        "The numbers are of this machine, now: compare those of one table only.",
    ]


def _cells(row: dict[str, Any]) -> list[str]:
    parameters = ", ".join(f"{p['name']}={p['default']}" for p in row["parameters"])
    # Where a stranger's is from; most come with emobench itself.
    stranger = row["origin"] and not row["origin"].startswith("emobench ")
    return [row["name"], parameters, row["equation"], row["summary"] + (f" [{row['origin']}]" if stranger else "")]


def _parameter(p: dict[str, Any]) -> tuple[str, str]:
    default = f" (default {p['default']})" if p["value"] != p["default"] else ""
    return f"{p['name']}: {p['type']} = {p['value']}{default}", p["help"] + (f" [{p['range']}]" if p["range"] else "")


def _labelled(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for label, text in rows:
        table.add_row(Text(label, style="bold"), Text(text))
    return table
