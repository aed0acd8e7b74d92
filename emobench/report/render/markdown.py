"""Tables as Markdown, with marked cells in bold."""

from __future__ import annotations

from collections.abc import Iterable

from emobench.report.render.grid import Cell, TableReport
from emobench.report.render.layout import Sheet, fit

WIDTH = 110
"""Columns of a table that can be turned; a wider one is turned or divided."""


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#~$" else "&amp;" if c == "&" else c for c in text)


def markdown(report: TableReport) -> str:
    """Return a report as Markdown: a paragraph for each line of text, and tables."""
    blocks = []
    for grid in report.grids:
        blocks += [f"**{markdown_text(grid.title)}**", *map(markdown_text, grid.subtitle)]
        blocks += [markdown_table(sheet) for sheet in fit(grid, WIDTH if grid.turned else None)]
        blocks += map(markdown_text, grid.below)
    return "\n\n".join([*blocks, *map(markdown_text, report.ending)]) + "\n"


def markdown_table(sheet: Sheet) -> str:
    heads = [head.replace("\n", " ").strip() for head in (sheet.corner, *map(str, sheet.heads))]
    lines = [_row(map(markdown_text, heads)), "|---|" + "".join("---|" if left else "---:|" for left in sheet.left)]
    for label, row in zip(sheet.labels, sheet.cells, strict=True):
        lines.append(_row([markdown_text(str(label).strip()), *(_cell(sheet, cell) for cell in row)]))
    return "\n".join(lines)


def _cell(sheet: Sheet, cell: Cell) -> str:
    text = markdown_text(sheet.text(cell))
    return f"**{text}**" if cell.marked else text


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(texts)} |"
