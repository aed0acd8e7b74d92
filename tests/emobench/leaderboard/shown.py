"""What a reader sees of entries and comparisons, for tests of their values."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from emobench.leaderboard.render import compare_table, leaderboard_table
from emobench.leaderboard.render.grid import ABSENT, Grid
from emobench.leaderboard.render.latex import latex
from emobench.leaderboard.render.markdown import markdown
from emobench.leaderboard.render.noise_table import noise_tables
from emobench.leaderboard.render.terminal import ReportView
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.stats.compare import Comparison

COLUMNS = ("difference", "interval", "p", "detectable", "verdict")


def board_text(entries: Sequence[Entry], *given: Any, **named: Any) -> ReportView:
    return ReportView(leaderboard_table.report(entries, *given, **named))


def board_markdown(entries: Sequence[Entry], *given: Any, **named: Any) -> str:
    return markdown(leaderboard_table.report(entries, *given, **named))


def compare_text(comparisons: Sequence[Comparison]) -> ReportView:
    return ReportView(compare_table.report(comparisons))


def compare_markdown(comparisons: Sequence[Comparison]) -> str:
    return markdown(compare_table.report(comparisons))


def compare_latex(comparisons: Sequence[Comparison]) -> str:
    return latex(compare_table.report(comparisons))


def compared(comparisons: Sequence[Comparison]) -> tuple[list[Any], list[str]]:
    """Return a table for each candidate, and the legend of all.

    A table has its `heading`, the `within` lines and the `lines`, whose columns are attributes.
    """
    tables = [
        SimpleNamespace(heading=pair.grid.title, within=pair.grid.legend, lines=_lines(pair.grid))
        for pair in compare_table.pair_tables(comparisons)
    ]
    return tables, list(compare_table.report(comparisons).ending)


def noise(comparisons: Sequence[Comparison]) -> list[Any]:
    """Return the tables of where noise comes from, each with `heading` and `rows`."""
    return [
        SimpleNamespace(
            heading=grid.title,
            rows=tuple((str(label), *map(str, row)) for label, row in zip(grid.rows, grid.cells, strict=True)),
        )
        for grid in noise_tables(comparisons)
    ]


def _lines(grid: Grid) -> list[Any]:
    heads = [str(column).removeprefix("95 % ") for column in grid.columns]
    names = ["baseline", "candidate", *heads[2:]]
    absent = dict.fromkeys(COLUMNS, ABSENT)
    return [
        SimpleNamespace(metric=label.text, **{**absent, **dict(zip(names, map(str, row), strict=True))})
        for label, row in zip(grid.rows, grid.cells, strict=True)
    ]
