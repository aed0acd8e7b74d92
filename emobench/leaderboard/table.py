"""Leaderboard tables for a terminal (rich), for Markdown and as JSON, from the same cells."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from emobench.config import to_plain
from emobench.leaderboard.cells import NO_ENTRIES, Cell, ExamplesOf, Grid, best_rows, grids
from emobench.leaderboard.comparison import groups
from emobench.leaderboard.entry import SCHEMA_VERSION, Entry

MARKDOWN_WIDTH = 110
_GAP = 2


def render(entries: Sequence[Entry], examples_of: ExamplesOf | None = None) -> RenderableType:
    """Return what rich prints: a table for each group of comparable entries, fitted to the width it is printed at.

    `examples_of` gives an entry's per-example results (from `examples.entry_examples`), which `best` pairs by item.
    """
    if not entries:
        return Text(NO_ENTRIES)
    return Group(*(GridView(grid) for grid in grids(entries, examples_of)))


def to_json(entries: Sequence[Entry], examples_of: ExamplesOf | None = None) -> dict[str, Any]:
    """Return {"schema", "groups": [{"suite", "model", "best": {metric: id or None}, "entries": [...]}]}."""
    found = []
    for group in groups(entries):
        first = to_plain(group[0])
        best = best_rows(group, examples_of)
        found.append({"suite": first["suite"], "model": first["model"], "best": best, "entries": to_plain(group)})
    return {"schema": SCHEMA_VERSION, "groups": found}


def markdown(entries: Sequence[Entry], examples_of: ExamplesOf | None = None) -> str:
    """Return the same tables as Markdown, with the best in bold."""
    if not entries:
        return NO_ENTRIES + "\n"
    return "\n".join(_markdown_grid(grid) for grid in grids(entries, examples_of))


@dataclass(frozen=True)
class _Sheet:
    """A table as it is drawn: the first column's labels, the headers (of one or more lines) and the cells."""

    corner: str
    heads: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[tuple[Cell, ...], ...]

    def texts(self) -> list[list[str]]:
        """Return the cells' text by column, padded so that a mark does not push its number out of line."""
        columns = [list(column) for column in zip(*self.cells, strict=True)]
        marked = [any(cell.best for cell in column) for column in columns]
        return [
            [str(cell) + (" " if mark and not cell.best else "") for cell in column]
            for column, mark in zip(columns, marked, strict=True)
        ]

    def widths(self) -> list[int]:
        """Return the width of the labels and of each column, gaps included."""
        columns = [[self.corner, *self.labels], *([h, *t] for h, t in zip(self.heads, self.texts(), strict=True))]
        return [max(cell_len(line) for text in column for line in text.split("\n")) + _GAP for column in columns]

    def split(self, width: int) -> list[_Sheet]:
        """Return as few sheets as fit, of about equally many columns each."""
        sheets = self._greedy(width, len(self.heads))
        return self._greedy(width, -(-len(self.heads) // len(sheets)))

    def _greedy(self, width: int, most: int) -> list[_Sheet]:
        labels, *columns = self.widths()
        bounds, used = [0], labels
        for index, needed in enumerate(columns):
            if index > bounds[-1] and (used + needed > width or index - bounds[-1] >= most):
                bounds.append(index)
                used = labels
            used += needed
        bounds.append(len(columns))
        return [self._columns(start, stop) for start, stop in itertools.pairwise(bounds)]

    def _columns(self, start: int, stop: int) -> _Sheet:
        return _Sheet(self.corner, self.heads[start:stop], self.labels, tuple(row[start:stop] for row in self.cells))


def _fit(grid: Grid, width: int) -> list[_Sheet]:
    """Return one row for each objective if that fits, else one for each metric, else several tables by metric."""
    if not grid.columns:
        return []
    upright = _Sheet("objective", tuple(c.lines() for c in grid.columns), grid.rows, grid.cells)
    turned = _Sheet("metric", grid.rows, tuple(map(str, grid.columns)), tuple(zip(*grid.cells, strict=True)))
    for sheet in (upright, turned):
        if sum(sheet.widths()) <= width:
            return [sheet]
    return upright.split(width)


@dataclass(frozen=True)
class GridView:
    """Draws a grid with rich at whatever width it is given."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.grid.title, style="bold")
        for line in self.grid.subtitle:
            yield Text(line, style="dim")
        for sheet in _fit(self.grid, options.max_width):
            yield Text()
            yield _rich_table(sheet)
        yield Text()
        for line in self.grid.legend:
            yield Text(line, style="dim")
        for number, note in enumerate(self.grid.notes, 1):
            yield Text(f"[{number}] {note}", style="dim")
        yield Text()


def _rich_table(sheet: _Sheet) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, _GAP, 0, 0), show_edge=False)
    table.add_column(Text(sheet.corner), overflow="fold", vertical="bottom")
    for head in sheet.heads:
        table.add_column(Text(head), justify="right", overflow="fold", vertical="bottom")
    for label, row, texts in zip(sheet.labels, sheet.cells, zip(*sheet.texts(), strict=True), strict=True):
        cells = [Text(text, style="bold" if cell.best else "") for text, cell in zip(texts, row, strict=True)]
        table.add_row(Text(label), *cells)
    return table


def _markdown_grid(grid: Grid) -> str:
    lines = [f"**{_escape(grid.title)}**", "", *(_escape(line) + "\n" for line in grid.subtitle)]
    for sheet in _fit(grid, MARKDOWN_WIDTH):
        heads = " | ".join(_escape(head.replace("\n", " ").strip()) for head in (sheet.corner, *sheet.heads))
        lines += [f"| {heads} |", "|---|" + "---:|" * len(sheet.heads)]
        for label, row in zip(sheet.labels, sheet.cells, strict=True):
            texts = [f"**{_escape(str(cell))}**" if cell.best else _escape(str(cell)) for cell in row]
            lines.append(f"| {_escape(label)} | {' | '.join(texts)} |")
        lines.append("")
    lines.append("\n\n".join(map(_escape, grid.legend)))
    lines += [f"\n{_escape(f'[{number}] {note}')}" for number, note in enumerate(grid.notes, 1)]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#~$" else "&amp;" if c == "&" else c for c in text)
