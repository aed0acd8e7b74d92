"""How a grid becomes tables of a given width: upright, turned, or several tables that repeat the rows' labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from emobench.leaderboard.render.grid import Cell, Column, Grid, Label

GAP = 3
"""Columns apart, as rich draws a table: 2 of padding, and 1 where another box would have a line."""


@dataclass(frozen=True)
class Sheet:
    """A table as it is drawn: the first column's labels, the headers (of one or more lines) and the cells."""

    corner: str
    heads: tuple[Label, ...]
    labels: tuple[Label, ...]
    cells: tuple[tuple[Cell, ...], ...]

    def texts(self) -> list[list[str]]:
        """Return the cells' text by column, padded so that a mark does not push its number out of line."""
        columns = [list(column) for column in zip(*self.cells, strict=True)]
        marked = [any(cell.marked for cell in column) for column in columns]
        return [
            [str(cell) + (" " if mark and not cell.marked else "") for cell in column]
            for column, mark in zip(columns, marked, strict=True)
        ]

    def widths(self) -> list[int]:
        """Return the width of the labels and of each column, gaps included."""
        names = [self.corner, *map(str, self.labels)]
        columns = [names, *([str(h), *t] for h, t in zip(self.heads, self.texts(), strict=True))]
        return [max(cell_len(line) for text in column for line in text.split("\n")) + GAP for column in columns]

    def part(self, columns: Sequence[int]) -> Sheet:
        """Return the sheet of some of the columns."""
        heads = tuple(self.heads[i] for i in columns)
        return Sheet(self.corner, heads, self.labels, tuple(tuple(row[i] for i in columns) for row in self.cells))


def fit(grid: Grid, width: int) -> list[Sheet]:
    """Return one row for each objective if that fits, else one for each metric, else several tables by metric."""
    if not grid.columns:
        return []
    upright = Sheet("objective", tuple(Label(c.lines()) for c in grid.columns), grid.rows, grid.cells)
    names = tuple(Label(str(column)) for column in grid.columns)
    turned = Sheet("metric", grid.rows, names, tuple(zip(*grid.cells, strict=True)))
    for sheet in (upright, turned):
        if sum(sheet.widths()) <= width:
            return [sheet]
    return _split(upright, grid.columns, width)


def _split(sheet: Sheet, columns: Sequence[Column], width: int) -> list[Sheet]:
    """Return as few sheets as fit, of about equally many columns each; a task's metrics stay together if they fit."""
    labels, *widths = sheet.widths()
    room = width - labels
    blocks = _blocks(columns)
    if any(sum(widths[i] for i in block) > room for block in blocks):
        blocks = [[i] for i in range(len(columns))]
    fewest = len(_pack(blocks, widths, room, len(columns)))
    tried = (_pack(blocks, widths, room, most) for most in range(1, len(columns) + 1))
    return [sheet.part(part) for part in next(packed for packed in tried if len(packed) == fewest)]


def _blocks(columns: Sequence[Column]) -> list[list[int]]:
    blocks: list[list[int]] = []
    for index, column in enumerate(columns):
        together = index and column.task and column.task == columns[index - 1].task
        blocks = [*blocks[:-1], [*blocks[-1], index]] if together else [*blocks, [index]]
    return blocks


def _pack(blocks: Sequence[Sequence[int]], widths: Sequence[int], room: int, most: int) -> list[list[int]]:
    """Return the blocks in order, as many together as have room, and of at most `most` columns."""
    packed: list[list[int]] = []
    for block in blocks:
        joined = [*packed[-1], *block] if packed else []
        if joined and len(joined) <= most and sum(widths[i] for i in joined) <= room:
            packed[-1] = joined
        else:
            packed.append(list(block))
    return packed
