"""Tables for a terminal, drawn by rich at whatever width they are given."""

from __future__ import annotations

from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from emobench.report.render.grid import Cell, TableReport
from emobench.report.render.layout import GAP, Sheet, fit

LEAST = 8
"""Columns that rows' labels have at least."""


@dataclass(frozen=True)
class ReportView:
    """A report that rich can print."""

    report: TableReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for grid in self.report.grids:
            yield Text(grid.title, style="bold")
            yield from (Text(line, style="dim") for line in grid.subtitle)
            for sheet in fit(grid, options.max_width):
                yield Text()
                yield _table(sheet)
            yield Text()
            yield from (Text(line, style="dim") for line in grid.below)
            if grid.below:
                yield Text()
        yield from (Text(line, style="dim") for line in self.report.ending)


def _table(sheet: Sheet) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    # Where a terminal is too narrow labels and words are broken, and numbers are not.
    table.add_column(Text(sheet.corner), overflow="fold", min_width=LEAST)
    for head, left in zip(sheet.heads, sheet.left, strict=True):
        table.add_column(_styled(head), justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for label, row, texts in zip(sheet.labels, sheet.cells, zip(*sheet.texts(), strict=True), strict=True):
        table.add_row(_styled(label), *(_styled(cell, text) for cell, text in zip(row, texts, strict=True)))
    return table


def _styled(shown: Cell, text: str | None = None) -> Text:
    bold = "bold " if shown.marked else ""
    return Text(str(shown) if text is None else text, style=bold + shown.style)
