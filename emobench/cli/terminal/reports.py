"""Printing tables of results: for the terminal, as Markdown or as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from emobench.cli.terminal.console import print_out
from emobench.cli.terminal.streams import print_text, remark
from emobench.leaderboard.labels import clean
from emobench.report.render.grid import TableReport
from emobench.report.render.latex import latex
from emobench.report.render.markdown import markdown
from emobench.report.render.terminal import ReportView

Format = Literal["text", "markdown", "latex"]


def print_report(report: TableReport, format: Format = "text") -> None:
    """Print a report on stdout."""
    if format == "text":
        print_out(ReportView(report))
    else:
        print_text((markdown if format == "markdown" else latex)(report))


def remark_unpaired(problems: Sequence[str]) -> None:
    """Print on stderr which files of per-example results could not be read: the first one, and how many more."""
    if problems:
        more = f" And {len(problems) - 1} more files." if len(problems) > 1 else ""
        remark(f"without per-example results: {clean(problems[0])}{more}")
