"""How a grid becomes tables of a given width: upright, turned, stacked, or several that repeat the rows' labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rich.cells import cell_len

from emobench.report.render.grid import Cell, Column, Grid, marks

GAP = 3
"""Columns apart, as rich draws a table: 2 of padding, and 1 where another box would have a line."""


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table as it is drawn: the first column's labels, the headers (of one or more lines) and the cells.

    `left` says of each column of cells whether it is aligned to the left.
    """

    corner: str
    heads: tuple[Cell, ...]
    labels: tuple[Cell, ...]
    cells: tuple[tuple[Cell, ...], ...]
    left: tuple[bool, ...]
    stars: bool

    def text(self, cell: Cell) -> str:
        """Return a cell's text with its star and its footnotes."""
        return cell.text + ("*" if cell.marked and self.stars else "") + marks(cell.notes)

    def texts(self) -> list[list[str]]:
        """Return the cells' text by column, padded so that a star does not push its number out of line."""
        columns = [list(column) for column in zip(*self.cells, strict=True)]
        starred = [self.stars and any(cell.marked for cell in column) for column in columns]
        return [
            [self.text(cell) + (" " if star and not cell.marked else "") for cell in column]
            for column, star in zip(columns, starred, strict=True)
        ]

    def widths(self) -> list[int]:
        """Return the width of the labels and of each column, gaps included."""
        names = [self.corner, *map(str, self.labels)]
        columns = [names, *([str(h), *t] for h, t in zip(self.heads, self.texts(), strict=True))]
        return [max(cell_len(line) for text in column for line in text.split("\n")) + GAP for column in columns]

    def part(self, columns: Sequence[int]) -> Sheet:
        """Return the sheet of some of the columns."""
        return replace(
            self,
            heads=tuple(self.heads[i] for i in columns),
            left=tuple(self.left[i] for i in columns),
            cells=tuple(tuple(row[i] for i in columns) for row in self.cells),
        )


def fit(grid: Grid, width: int | None) -> list[Sheet]:
    """Return the tables that show a grid in `width` columns; of any width where that is None.

    It is one table if that fits. Else a grid that may be turned is: one row for each column; or several tables, by
    column. Another one has cells below each other, then labels on several lines, then several tables.
    """
    if not grid.columns:
        return []
    upright = Sheet(
        corner=grid.corner,
        heads=tuple(Cell(column.lines()) for column in grid.columns),
        labels=grid.rows,
        cells=grid.cells,
        left=tuple(column.left for column in grid.columns),
        stars=grid.stars,
    )
    # A table needs no gap after its last column; one that may be turned keeps it as a margin.
    room = math.inf if width is None else width if grid.turned else width + GAP
    if sum(upright.widths()) <= room:
        return [upright]
    if not grid.turned:
        stacked, columns = _stacked(upright, grid.columns), [column for column in grid.columns if not column.below]
        narrow = _narrow(stacked)
        fitting = next((sheet for sheet in (stacked, narrow) if sum(sheet.widths()) <= room), None)
        return [fitting] if fitting else _split(narrow, columns, room)
    turned = _turned(grid, upright)
    return [turned] if sum(turned.widths()) <= room else _split(upright, grid.columns, room)


def _turned(grid: Grid, upright: Sheet) -> Sheet:
    cells = tuple(zip(*grid.cells, strict=True))
    names = tuple(Cell(str(column)) for column in grid.columns)
    right = (False,) * len(grid.rows)
    return replace(upright, corner=grid.turned, heads=grid.rows, labels=names, cells=cells, left=right)


def _stacked(sheet: Sheet, columns: Sequence[Column]) -> Sheet:
    """Return a sheet in which the cells of columns that may go below are below those of the column before."""
    kept = [i for i, column in enumerate(columns) if not column.below]
    below = {i: i + 1 for i in kept if i + 1 < len(columns) and columns[i + 1].below}

    def joined(parts: Sequence[Cell], i: int) -> str:
        return f"{parts[i]}\n{parts[below[i]]}" if i in below else str(parts[i])

    rows = tuple(tuple(replace(row[i], text=joined(row, i), notes=()) for i in kept) for row in sheet.cells)
    heads = tuple(Cell(joined(sheet.heads, i)) for i in kept)
    return replace(sheet, heads=heads, cells=rows, left=tuple(sheet.left[i] for i in kept))


def _narrow(sheet: Sheet) -> Sheet:
    """Return a sheet whose labels go on after a slash or a comma, and footnotes below words, so that no name breaks."""

    def noted(cell: Cell) -> Cell:
        return replace(cell, text=cell.text.replace(" [", "\n["))

    labels = (replace(label, text=label.text.replace("/", "/\n").replace(", ", ",\n")) for label in sheet.labels)
    cells = (
        tuple(noted(cell) if left else cell for cell, left in zip(row, sheet.left, strict=True)) for row in sheet.cells
    )
    return replace(sheet, labels=tuple(labels), cells=tuple(cells))


def _split(sheet: Sheet, columns: Sequence[Column], width: float) -> list[Sheet]:
    """Return sheets that fit, with as many columns as there is room for; a task's metrics stay together if they fit."""
    labels, *widths = sheet.widths()
    blocks = [list(of) for _, of in groupby(range(len(columns)), key=lambda i: columns[i].task or i)]
    if any(labels + sum(widths[i] for i in block) > width for block in blocks):
        blocks = [[i] for i in range(len(columns))]
    parts: list[list[int]] = [[]]
    for block in blocks:
        if parts[-1] and labels + sum(widths[i] for i in (*parts[-1], *block)) > width:
            parts.append([])
        parts[-1] += block
    return [sheet.part(part) for part in parts]
