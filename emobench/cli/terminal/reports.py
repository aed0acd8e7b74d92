"""Printing tables of results: for the terminal, as Markdown or as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from emobench.cli.terminal.console import print_out
from emobench.cli.terminal.streams import print_text, remark
from emobench.core.errors import ConfigError
from emobench.leaderboard.labels import clean
from emobench.report.tables import Report

Format = Literal["text", "markdown", "latex"]


def format_of(markdown: bool, latex: bool, *others: bool) -> Format:
    """Return the format that flags choose for tables. Raises ConfigError for several flags."""
    if sum((markdown, latex, *others)) > 1:
        raise ConfigError("--markdown, --latex, --csv and --json are one choice; give one of them.")
    if latex:
        return "latex"
    return "markdown" if markdown else "text"


def print_report(report: Report, format: Format) -> None:
    """Print a report on stdout."""
    if format == "text":
        print_out(report)
    else:
        print_text(report.markdown() if format == "markdown" else report.latex())


def remark_unpaired(problems: Sequence[str]) -> None:
    """Print on stderr which files of per-example results could not be read: the first one, and how many more."""
    if problems:
        more = f" And {len(problems) - 1} more files." if len(problems) > 1 else ""
        remark(f"without per-example results: {clean(problems[0])}{more}")
