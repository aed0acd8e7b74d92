"""Reports: tables of text with notes, drawn by rich in a terminal, and as Markdown, LaTeX or pandas data frames.

A header or a cell may have several lines. A header such as "sst2/\\naccuracy" is "sst2/accuracy" in one line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from emobench.leaderboard.labels import clean

if TYPE_CHECKING:
    import pandas as pd

GAP = 3
"""Columns between two columns, as rich draws a table: 2 of padding and 1 for the line of other boxes."""
LEAST = 8
"""Smallest width of the column of labels."""
MARKDOWN_WIDTH = 110
"""Columns of a Markdown table that may be turned; a wider one is turned or divided."""


@dataclass(frozen=True)
class Cell:
    """`style` is one of rich; bold cells are bold in Markdown and LaTeX, too."""

    text: str
    style: str = ""

    @property
    def bold(self) -> bool:
        return "bold" in self.style


@dataclass(frozen=True, kw_only=True)
class Table:
    """`rows[row][column]`; the first cell of a row is its label. The lines of `above` and `below` are notes.

    Columns named in `left` are aligned to the left, as the first one is. `across` names what the columns are: a table
    that has it may be turned to fit a width.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    left: Collection[str] = ()
    across: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """The text of the cells."""
        import pandas as pd  # takes longer than all other work on a table

        texts = [[cell.text for cell in row] for row in self.rows]
        return pd.DataFrame(texts, columns=[one_line(name) for name in self.columns])

    def aligned_left(self) -> list[bool]:
        return [place == 0 or name in self.left for place, name in enumerate(self.columns)]

    def widths(self) -> list[int]:
        """Return the width of each column with its gap."""
        widths = []
        for place, name in enumerate(self.columns):
            lines = name.split("\n")
            for row in self.rows:
                lines += row[place].text.split("\n")
            widths.append(max(map(cell_len, lines)) + GAP)
        return widths

    def part(self, places: Sequence[int]) -> Table:
        """Return the table of some columns."""
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return replace(self, columns=tuple(self.columns[place] for place in places), rows=rows)

    def turned(self) -> Table:
        labels = [Cell(one_line(name)) for name in self.columns[1:]]
        values = zip(*(row[1:] for row in self.rows), strict=True)
        rows = tuple((label, *row) for label, row in zip(labels, values, strict=True))
        return replace(self, columns=(self.across, *(row[0].text for row in self.rows)), rows=rows)

    def padded(self) -> Table:
        """Return the table with a space where other cells of a column have a star, so that numbers stay in line."""
        starred = {place for row in self.rows for place, cell in enumerate(row) if place and "*" in cell.text}
        rows = []
        for row in self.rows:
            cells = list(row)
            for place in starred:
                if "*" not in cells[place].text:
                    cells[place] = replace(cells[place], text=f"{cells[place].text} ")
            rows.append(tuple(cells))
        return replace(self, rows=tuple(rows))

    def fit(self, width: int | None) -> list[Table]:
        """Return the tables that show this one in `width` columns, None for any width.

        It is one table if that fits, upright or turned. Else several repeat the labels, and share the columns evenly.
        """
        count = len(self.columns) - 1
        if count == 0:
            return []
        upright = self.padded()
        # A table needs no gap after its last column; one that may be turned keeps it as a margin.
        room = math.inf if width is None else width + (0 if self.across else GAP)
        if sum(upright.widths()) <= room:
            return [upright]
        if self.across and sum((turned := self.turned().padded()).widths()) <= room:
            return [turned]
        labels, *widths = upright.widths()
        parts: list[range] = []
        for several in range(1, count + 1):
            parts = [range(count * i // several, count * (i + 1) // several) for i in range(several)]
            if all(labels + sum(widths[place] for place in part) <= room for part in parts):
                break
        return [upright.part([0, *(place + 1 for place in part)]) for part in parts]


@dataclass(frozen=True)
class Report:
    """Tables, and the notes on all of them. rich can print it."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, tables: Sequence[Table]) -> Report:
        """Return a report in which a note that is below each of several tables is given once, at the end."""
        if len(tables) < 2:
            return cls(tuple(tables))
        shared = [line for line in tables[0].below if all(line in table.below for table in tables)]
        kept = []
        for table in tables:
            own = tuple(line for line in table.below if line not in shared)
            kept.append(replace(table, below=own))
        return cls(tuple(kept), tuple(shared))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in self.tables:
            yield Text(table.title, style="bold")
            yield from _dim(table.above)
            for part in table.fit(options.max_width):
                yield Text()
                yield _drawn(part)
            yield Text()
            if table.below:
                yield from _dim(table.below)
                yield Text()
        yield from _dim(self.notes)

    def markdown(self) -> str:
        """Return a paragraph for each line of text, and the tables."""
        blocks = []
        for table in self.tables:
            blocks += [f"**{markdown_text(table.title)}**", *map(markdown_text, table.above)]
            blocks += map(markdown_table, table.fit(MARKDOWN_WIDTH if table.across else None))
            blocks += map(markdown_text, table.below)
        return "\n\n".join([*blocks, *map(markdown_text, self.notes)]) + "\n"

    def latex(self) -> str:
        """Return tabulars for booktabs, which are not divided; all other text is in comments."""
        blocks = []
        for table in self.tables:
            lines = [*_comments([table.title, *table.above])]
            for part in table.fit(None):
                lines += _tabular(part)
            blocks.append([*lines, *_comments(table.below)])
        if self.notes:
            blocks.append(_comments(self.notes))
        return "% \\usepackage{booktabs}\n" + "\n\n".join("\n".join(lines) for lines in blocks) + "\n"


class Notes:
    """Collects footnotes; equal texts share a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of footnotes, new ones for new texts."""
        return tuple(self._numbers.setdefault(clean(text), len(self._numbers) + 1) for text in texts)

    def marks(self, texts: Iterable[str]) -> str:
        """Return the marks of footnotes at the end of a text, such as " [1] [2]"."""
        return "".join(f" [{number}]" for number in self.number(texts))

    def lines(self) -> list[str]:
        return [f"[{number}] {text}" for text, number in self._numbers.items()]


def one_line(text: str) -> str:
    return text.replace("/\n", "/").replace("\n", " ").strip()


def _dim(lines: Iterable[str]) -> Iterator[Text]:
    for line in lines:
        yield Text(line, style="dim")


def _drawn(table: Table) -> RichTable:
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    # Where a terminal is too narrow labels and words are broken, and numbers are not.
    drawn.add_column(Text(table.columns[0]), overflow="fold", min_width=LEAST)
    for name, left in list(zip(table.columns, table.aligned_left(), strict=True))[1:]:
        drawn.add_column(Text(name), justify="left" if left else "right", overflow="fold", no_wrap=not left)
    for row in table.rows:
        drawn.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return drawn


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"[\\`*_\[\]<>|#~$]", r"\\\g<0>", text.replace("&", "&amp;"))


def markdown_table(table: Table) -> str:
    rules = "".join("---|" if left else "---:|" for left in table.aligned_left())
    lines = [_joined("| {} |", " | ", map(markdown_text, map(one_line, table.columns))), f"|{rules}"]
    lines += [_joined("| {} |", " | ", _cells(row, markdown_text, "**{}**")) for row in table.rows]
    return "\n".join(lines)


def _tabular(table: Table) -> list[str]:
    alignment = "".join("l" if left else "r" for left in table.aligned_left())
    lines = [f"\\begin{{tabular}}{{{alignment}}}", "\\toprule"]
    lines += [_joined("{} \\\\", " & ", map(latex_text, map(one_line, table.columns))), "\\midrule"]
    lines += [_joined("{} \\\\", " & ", _cells(row, latex_text, "\\textbf{{{}}}")) for row in table.rows]
    return [*lines, "\\bottomrule", "\\end{tabular}"]


def _joined(line: str, separator: str, texts: Iterable[str]) -> str:
    return line.format(separator.join(texts))


def _cells(row: Sequence[Cell], escape: Callable[[str], str], bold: str) -> Iterator[str]:
    """Yield the text of a row's cells; the style of a label is for terminals alone."""
    for place, cell in enumerate(row):
        text = escape(one_line(cell.text))
        yield bold.format(text) if cell.bold and place else text


_LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "↑": "$\\uparrow$",
    "↓": "$\\downarrow$",
    "–": "--",
    "-": "$-$",
    "[": "{[}",
    "·": "$\\cdot$",
} | {character: f"\\{character}" for character in "&%$#_{}"}


def latex_text(text: str) -> str:
    """Return text as LaTeX sets it."""
    parts = re.split(r"((?<=[^\W\d])-(?=\w))", text)  # a name's hyphen is not a minus
    return "".join(part if part == "-" else "".join(_LATEX.get(c, c) for c in part) for part in parts)


def _comments(lines: Iterable[str]) -> list[str]:
    return [f"% {' '.join(line.split())}" for line in lines]


FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Begin a formula in a spreadsheet; the wide ones in East Asian editions."""


def csv_text(fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV; other keys than `fields` are left out, and lists are joined by spaces."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: _csv_cell(value) for key, value in row.items()})
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a value as a cell: numbers as they are, and text in one line that no spreadsheet takes for a formula."""
    if isinstance(value, (list, tuple)):
        joined = " ".join(map(str, value))
        return _csv_cell(joined) if any(isinstance(item, str) for item in value) else joined
    if not isinstance(value, str):
        return value
    shown = clean(value)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown
