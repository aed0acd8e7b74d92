"""Printing tables of results: for the terminal, as Markdown or as LaTeX."""

from __future__ import annotations

from typing import Literal

from emobench.cli.console import print_out, print_text
from emobench.leaderboard.render.grid import TableReport
from emobench.leaderboard.render.latex import latex
from emobench.leaderboard.render.markdown import markdown
from emobench.leaderboard.render.terminal import ReportView

Format = Literal["text", "markdown", "latex"]


def print_report(report: TableReport, format: Format = "text") -> None:
    """Print a report on stdout."""
    if format == "text":
        print_out(ReportView(report))
    else:
        print_text((markdown if format == "markdown" else latex)(report))
