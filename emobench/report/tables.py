"""Reports: tables of text with notes, drawn by rich in a terminal, and as Markdown, LaTeX or pandas data frames.

A header or a cell may have several lines. A header such as "sst2/\\naccuracy" is "sst2/accuracy" in one line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
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


def texts(cells: Iterable[Cell]) -> list[str]:
    return [cell.text for cell in cells]


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

        return pd.DataFrame(list(map(texts, self.rows)), columns=list(map(one_line, self.columns)))

    def alignments(self) -> str:
        """Return the letter l or r for each column."""
        sides = "l"
        for name in self.columns[1:]:
            sides += "l" if name in self.left else "r"
        return sides

    def part(self, places: Sequence[int]) -> Table:
        """Return the table of some columns."""
        columns = tuple(self.columns[place] for place in places)
        rows = []
        for row in self.rows:
            rows.append(tuple(row[place] for place in places))
        return replace(self, columns=columns, rows=tuple(rows))

    def turned(self) -> Table:
        rows = []
        for place, name in enumerate(self.columns[1:], 1):
            cells = [row[place] for row in self.rows]
            rows.append((Cell(one_line(name)), *cells))
        labels = [row[0].text for row in self.rows]
        return replace(self, columns=(self.across, *labels), rows=tuple(rows))

    def padded(self) -> tuple[Table, list[int]]:
        """Return the table and the width of each column with its gap.

        It has a space where other cells of a column have a star, so that numbers stay in line.
        """
        columns, widths = [], []
        for place, name in enumerate(self.columns):
            starred = False
            if place:
                starred = any("*" in row[place].text for row in self.rows)
            cells = []
            for row in self.rows:
                cell = row[place]
                if starred and "*" not in cell.text:
                    cell = Cell(f"{cell.text} ", cell.style)
                cells.append(cell)
            lines = "\n".join([name, *texts(cells)]).split("\n")
            columns.append(cells)
            widths.append(max(map(cell_len, lines)) + GAP)
        return replace(self, rows=tuple(zip(*columns, strict=True))), widths

    def fit(self, width: int | None) -> list[Table]:
        """Return the tables that show this one in `width` columns, None for any width.

        It is one table if that fits, upright or turned. Else several repeat the labels, and share the columns evenly.
        """
        count = len(self.columns) - 1
        if count == 0:
            return []
        upright, (labels, *widths) = self.padded()
        # A table needs no gap after its last column; one that may be turned keeps it as a margin.
        room = math.inf
        if width is not None:
            room = width if self.across else width + GAP
        if labels + sum(widths) <= room:
            return [upright]
        if self.across:
            turned, of_turned = self.turned().padded()
            if sum(of_turned) <= room:
                return [turned]
        parts: list[range] = []
        for several in range(1, count + 1):
            parts, widest = [], 0
            for number in range(several):
                start, stop = count * number // several, count * (number + 1) // several
                parts.append(range(1 + start, 1 + stop))
                widest = max(widest, labels + sum(widths[start:stop]))
            if widest <= room:
                break
        return [upright.part([0, *part]) for part in parts]


@dataclass(frozen=True)
class Report:
    """Tables, and the notes on all of them. rich can print it."""

    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, tables: Sequence[Table]) -> Report:
        """Return a report in which a note that is below each of several tables is given once, at the end."""
        counts: Counter[str] = Counter()
        for table in tables:
            counts.update(table.below)
        shared: list[str] = []
        if len(tables) > 1:
            shared = [line for line in counts if counts[line] == len(tables)]
        kept = []
        for table in tables:
            own = [line for line in table.below if line not in shared]
            kept.append(replace(table, below=tuple(own)))
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
        """Return a tabular of booktabs for each table, in its full width; titles, remarks and notes are comments."""
        blocks = []
        for table in self.tables:
            above, below = _comments([table.title, *table.above]), _comments(table.below)
            tabulars = map(_tabular, table.fit(None))
            blocks.append("\n".join([*above, *tabulars, *below]))
        if self.notes:
            blocks.append("\n".join(_comments(self.notes)))
        return "% \\usepackage{booktabs}\n" + "\n\n".join(blocks) + "\n"


class Notes:
    """Collects footnotes; equal texts share a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of footnotes, new ones for new texts."""
        numbers = []
        for text in map(clean, texts):
            numbers.append(self._numbers.setdefault(text, len(self._numbers) + 1))
        return tuple(numbers)

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
    for name in table.columns[1:]:
        if name in table.left:
            drawn.add_column(Text(name), overflow="fold")
        else:
            drawn.add_column(Text(name), justify="right", overflow="fold", no_wrap=True)
    for row in table.rows:
        cells = [Text(cell.text, style=cell.style) for cell in row]
        drawn.add_row(*cells)
    return drawn


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"[\\`*_\[\]<>|#~$]", r"\\\g<0>", text.replace("&", "&amp;"))


def markdown_table(table: Table) -> str:
    rules = table.alignments().replace("l", "---|").replace("r", "---:|")
    lines = []
    for cells in _escaped(table, markdown_text, "**{}**"):
        lines.append(f"| {' | '.join(cells)} |")
    lines.insert(1, f"|{rules}")
    return "\n".join(lines)


def _tabular(table: Table) -> str:
    lines = [f"\\begin{{tabular}}{{{table.alignments()}}}", "\\toprule"]
    for cells in _escaped(table, latex_text, "\\textbf{{{}}}"):
        lines.append(f"{' & '.join(cells)} \\\\")
    lines.insert(3, "\\midrule")
    return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"])


def _escaped(table: Table, escape: Callable[[str], str], bold: str) -> Iterator[list[str]]:
    """Yield the header and the rows, each cell in one line; the style of a label is for terminals alone."""
    yield list(map(escape, map(one_line, table.columns)))
    for row in table.rows:
        shown = list(map(escape, map(one_line, texts(row))))
        for place, cell in enumerate(row):
            if place and "bold" in cell.style:
                shown[place] = bold.format(shown[place])
        yield shown


_LATEX = str.maketrans(
    {
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
        "&": "\\&",
        "%": "\\%",
        "$": "\\$",
        "#": "\\#",
        "_": "\\_",
        "{": "\\{",
        "}": "\\}",
    }
)


def latex_text(text: str) -> str:
    """Return text as LaTeX sets it; a name's hyphen is not a minus."""
    return re.sub(r"(?<=[^\W\d])\$-\$(?=\w)", "-", text.translate(_LATEX))


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
        writer.writerow(dict(zip(row, map(_csv_cell, row.values()), strict=True)))
    return out.getvalue()


def _csv_cell(value: Any) -> Any:
    """Return a value as a cell: numbers as they are, and text in one line that no spreadsheet takes for a formula."""
    if isinstance(value, (list, tuple)):
        numbers = not any(isinstance(item, str) for item in value)
        value = " ".join(map(str, value))
        if numbers:
            return value
    if not isinstance(value, str):
        return value
    shown = clean(value)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown
