"""What a reader sees of entries and comparisons: cells for tests of values, and whole texts against golden files.

A reworded sentence changes `golden/show.txt` or `golden/compare.txt`, and nothing else: EMOBENCH_GOLDEN=write pytest
tests/emobench/report/render/test_printed.py writes them anew; read the difference.
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
from emobench.report.render import compare_table, leaderboard_table
from emobench.report.render.grid import ABSENT, Grid, TableReport, marks
from emobench.report.render.markdown import markdown
from emobench.report.render.terminal import ReportView

GOLDEN = Path(__file__).parent / "report" / "render" / "golden"
COLUMNS = ("difference", "interval", "p", "detectable", "verdict")


def check_golden(name: str, text: str) -> None:
    """Compare a text, in which ids are replaced, with a golden file."""
    text = re.sub(r"\b[0-9a-f]{6}(?=\\?\])", "id", re.sub(r" +$", "", text, flags=re.MULTILINE))
    if os.environ.get("EMOBENCH_GOLDEN") == "write":
        (GOLDEN / name).write_text(text)
    assert text == (GOLDEN / name).read_text()


def printed(report: TableReport | ReportView, width: int = 100) -> str:
    """Return a report as a terminal of some width shows it."""
    console = Console(width=width, file=io.StringIO(), color_system=None, markup=False, highlight=False)
    console.print(ReportView(report) if isinstance(report, TableReport) else report)
    return console.file.getvalue()  # type: ignore[attr-defined]


def board_text(entries: Sequence[Entry], *given: Any, **named: Any) -> ReportView:
    return ReportView(leaderboard_table.report(entries, *given, **named))


def board_markdown(entries: Sequence[Entry], *given: Any, **named: Any) -> str:
    return markdown(leaderboard_table.report(entries, *given, **named))


def board_cells(entries: Sequence[Entry], **named: Any) -> list[dict[str, list[str]]]:
    """Return, for each table, its rows' cells by label, with their stars and footnotes."""
    return [
        {
            row.text.strip(): [cell.text + "*" * cell.marked + marks(cell.notes) for cell in of]
            for row, of in zip(grid.rows, grid.cells, strict=True)
        }
        for grid in leaderboard_table.report(entries, **named).grids
    ]


def compared(comparisons: Sequence[Comparison]) -> tuple[list[Any], list[str]]:
    """Return a table for each candidate, and the legend of all.

    A table has its `heading`, the `within` lines and the `lines`, whose columns are attributes.
    """
    tables = [
        SimpleNamespace(heading=grid.title, within=grid.legend, lines=_lines(grid))
        for grid, _ in compare_table.pair_tables(comparisons)
    ]
    return tables, list(compare_table.report(comparisons).ending)


def _lines(grid: Grid) -> list[Any]:
    heads = [str(column).removeprefix("95 % ") for column in grid.columns]
    names = ["baseline", "candidate", *heads[2:]]
    absent = dict.fromkeys(COLUMNS, ABSENT)
    return [
        SimpleNamespace(metric=label.text, **{**absent, **dict(zip(names, map(str, row), strict=True))})
        for label, row in zip(grid.rows, grid.cells, strict=True)
    ]
