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
    right: bool = False
    """Columns but the first are aligned to the right."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [[visible(name), *(visible_lines(row[i]) for row in self.rows)] for i, name in enumerate(self.header)]
        widths = [max(cell_len(line) for text in column for line in text.split("\n")) for column in columns]
        longest = [max((cell_len(word) for text in column for word in text.split()), default=0) for column in columns]
        firm = [i == 0 or name in self.unbroken for i, name in enumerate(self.header)]
        half = options.max_width // 2
        least = [w if fixed else min(long, half) for w, fixed, long in zip(widths, firm, longest, strict=True)]
        kept = _fitting(least, firm, options.max_width)
        narrow = _narrowed([widths[i] for i in kept], [least[i] for i in kept], options.max_width)
        if len(kept) == len(columns):
            yield self._table(columns, narrow, range(len(self.rows)))
            return
        for row in range(len(self.rows)):
            yield self._table([columns[i] for i in kept], narrow, [row], headed=row == 0)
            for i, column in enumerate(columns):
                if i not in kept and column[row + 1]:
                    text = f"{column[0]}: {column[row + 1]}" if column[0] else column[row + 1]
                    yield Padding(Text(text, overflow="fold"), (0, 0, 0, INDENT))

    def _table(
        self, columns: Sequence[Sequence[str]], widths: Sequence[int], rows: Sequence[int], *, headed: bool = True
    ) -> Table:
        title = Text(visible(self.title)) if self.title and headed else None
        table = Table(
            title=title, title_justify="left", box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=headed
        )
        for place, (column, width) in enumerate(zip(columns, widths, strict=True)):
            justify = "right" if self.right and place else "left"
            table.add_column(Text(column[0]), overflow="fold", width=width, justify=justify)
        for row in rows:
            table.add_row(*(Text(column[row + 1]) for column in columns))
        return table


def _fitting(least: Sequence[int], firm: Sequence[bool], room: int) -> list[int]:
    """Return the columns that fit beside one another: all of them, or all but those with the longest words.

    Columns that are wrapped go first, and the first column never goes.
    """
    kept = list(range(len(least)))
    while sum(least[i] + GAP for i in kept) - GAP > room:
        loose = [i for i in kept if not firm[i]] or kept[1:]
        if not loose:
            break
        kept.remove(max(loose, key=lambda i: (least[i], i)))
    return kept


def _narrowed(widths: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Return widths that fit into `room`, if those in `least` do; the widest column gives first."""
    found = list(widths)
    while sum(found) + GAP * (len(found) - 1) > room:
        wider = [i for i, width in enumerate(found) if width > least[i]]
        if not wider:
            break
        found[max(wider, key=lambda i: found[i])] -= 1
    return found
