"""What a reader sees of entries and comparisons: cells for tests of values, and whole texts against golden files.

A reworded sentence changes `golden/show.txt` or `golden/compare.txt`, and nothing else: EMOBENCH_GOLDEN=write pytest
tests/emobench/report/test_printed.py writes them anew; read the difference.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import Comparison
from emobench.report import board_table, compare_table
from emobench.report.numbers import ABSENT
from emobench.report.tables import Report, Table, one_line

GOLDEN = Path(__file__).parent / "report" / "golden"
COLUMNS = ("difference", "interval", "p", "detectable", "verdict")


def check_golden(name: str, text: str) -> None:
    """Compare a text, in which ids are replaced, with a golden file."""
    text = re.sub(r"\b[0-9a-f]{6}(?=\\?\])", "id", re.sub(r" +$", "", text, flags=re.MULTILINE))
    if os.environ.get("EMOBENCH_GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def printed(report: Report, width: int = 100) -> str:
    """Return a report as a terminal of some width shows it."""
    console = Console(width=width, file=io.StringIO(), color_system=None, markup=False, highlight=False)
    console.print(report)
    return console.file.getvalue()  # type: ignore[attr-defined]


def board_text(entries: Sequence[Entry], *given: Any, **named: Any) -> Report:
    return board_table.report(entries, *given, **named)


def board_markdown(entries: Sequence[Entry], *given: Any, **named: Any) -> str:
    return board_table.report(entries, *given, **named).markdown()


def board_cells(entries: Sequence[Entry], **named: Any) -> list[dict[str, list[str]]]:
    """Return, for each table, its rows' cells by label, with their stars and footnotes."""
    return [
        {row[0].text.strip(): [cell.text for cell in row[1:]] for row in table.rows}
        for table in board_table.report(entries, **named).tables
    ]


def compared(comparisons: Sequence[Comparison]) -> tuple[list[Any], list[str]]:
    """Return a table for each candidate, and the legend of all.

    A table has its `heading`, the `within` lines and the `lines`, whose columns are attributes.
    """
    tables = [
        SimpleNamespace(heading=table.title, within=table.below, lines=_lines(table))
        for table, _ in compare_table.pair_tables(comparisons)
    ]
    return tables, list(compare_table.report(comparisons).notes)


def _lines(table: Table) -> list[Any]:
    heads = [one_line(column).removeprefix("95 % ") for column in table.columns]
    names = ["metric", "baseline", "candidate", *heads[3:]]
    absent = dict.fromkeys(COLUMNS, ABSENT)
    return [
        SimpleNamespace(**{**absent, **dict(zip(names, (cell.text for cell in row), strict=True))})
        for row in table.rows
    ]


def inner_commands(command: Any) -> dict[str, Any]:
    """Return the commands of a group by name, imported; a command that is no group has none."""
    commands = getattr(command, "commands", {})
    return {name: command.load(name) if hasattr(command, "load") else commands[name] for name in commands}
