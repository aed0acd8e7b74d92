"""Tables of text for a terminal: no name is broken, and where a column does not fit, its texts go below their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emobench.cli.terminal.streams import visible, visible_lines

GAP = 2
INDENT = 4
"""Of texts below their row."""


@dataclass(frozen=True)
class TextTable:
    """A table without lines. The first column and those in `unbroken` are never wrapped, the others between words.

    Only a word that is longer than half a line may be broken. Where the columns need more than the width, those with
    the longest words are left out, and their texts stand below each row, after the column's name.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    unbroken: Sequence[str] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [_Column(self, place, options.max_width // 2) for place in range(len(self.header))]
        shown = _fitting(columns, options.max_width)
        _narrow(shown, options.max_width)
        below = [column for column in columns if column not in shown]
        if not below:
            yield self._table(shown, range(len(self.rows)))
            return
        for row in range(len(self.rows)):
            yield self._table(shown, [row], headed=row == 0)
            for column in below:
                text = column.texts[row]
                if text:
                    label = f"{column.name}: " if column.name else ""
                    yield Padding(Text(label + text, overflow="fold"), (0, 0, 0, INDENT))

    def _table(self, columns: Sequence[_Column], rows: Sequence[int], *, headed: bool = True) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=headed, title_justify="left")
        if self.title and headed:
            table.title = Text(visible(self.title))
        for column in columns:
            table.add_column(Text(column.name), overflow="fold", width=column.width)
        for row in rows:
            table.add_row(*(Text(column.texts[row]) for column in columns))
        return table


class _Column:
    """A column of a table with its widths in cells."""

    def __init__(self, table: TextTable, place: int, longest_word: int) -> None:
        self.name = visible(table.header[place])
        self.texts = [visible_lines(row[place]) for row in table.rows]
        self.is_firm = place == 0 or table.header[place] in table.unbroken
        self.width = 0
        self.least = 0
        for text in (self.name, *self.texts):
            self.width = max(self.width, *map(cell_len, text.split("\n")))
            self.least = max(self.least, *map(cell_len, text.split()), 0)
        self.least = self.width if self.is_firm else min(self.least, longest_word)


def _fitting(columns: Sequence[_Column], room: int) -> list[_Column]:
    """Return the columns that fit beside one another: all of them, or all but those with the longest words.

    Columns that are wrapped go first, and the first column never goes.
    """
    kept = list(columns)
    while sum(column.least + GAP for column in kept) - GAP > room:
        loose = [column for column in kept if not column.is_firm] or kept[1:]
        if not loose:
            break
        widest = max(column.least for column in loose)
        kept.remove([column for column in loose if column.least == widest][-1])
    return kept


def _narrow(columns: Sequence[_Column], room: int) -> None:
    """Narrow columns until they fit into `room`, if their least widths do; the widest column gives first."""
    while sum(column.width + GAP for column in columns) - GAP > room:
        wider = [column for column in columns if column.width > column.least]
        if not wider:
            break
        max(wider, key=lambda column: column.width).width -= 1
