"""The one model of a table before it is drawn: rows, columns, cells, and the text above and below.

`terminal.py`, `markdown.py` and `latex.py` draw it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from emobench.leaderboard.labels import clean

ABSENT = "–"


@dataclass(frozen=True)
class Cell:
    """A value, or the label of a row. `marked`: bold, and with a star where the grid has stars; `notes`: footnotes."""

    text: str
    marked: bool = False
    notes: tuple[int, ...] = ()
    style: str = ""
    """Of rich: "bold", "dim", or that of a verdict (`palette`)."""

    def __str__(self) -> str:
        return self.text + marks(self.notes)


@dataclass(frozen=True)
class Column:
    """`unit` ends in the arrow that points to the better side; `task` is empty where all columns are of one.

    `size` is the number of examples behind a value, such as "n=1821". `left`: aligned to the left. `below`: where the
    table is too wide, these cells go below those of the column before.
    """

    task: str
    metric: str
    unit: str = ""
    size: str = ""
    notes: tuple[int, ...] = ()
    left: bool = False
    below: bool = False

    def lines(self) -> str:
        """Return the header on several lines, for a narrow column."""
        last = " ".join(filter(None, [self.unit, self.size])) + marks(self.notes)
        return "\n".join(filter(None, [self.task, self.metric, last.strip()]))

    def __str__(self) -> str:
        name = "/".join(filter(None, [self.task, self.metric]))
        return " ".join(filter(None, [name, self.unit, self.size])) + marks(self.notes)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """`cells[row][column]`; `subtitle` names the conditions that all rows share, and `notes` are numbered from 1.

    `corner` is the header of the rows' labels. `turned` is that of the columns' labels in a table turned to fit a
    narrow terminal; empty where the table is never turned. `stars`: marked cells have a star.
    """

    title: str
    rows: tuple[Cell, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[Cell, ...], ...]
    subtitle: tuple[str, ...] = ()
    legend: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    corner: str = "objective"
    turned: str = "metric"
    stars: bool = True

    @property
    def below(self) -> list[str]:
        """The legend and the footnotes."""
        return [*self.legend, *numbered(self.notes)]


@dataclass(frozen=True)
class TableReport:
    """Tables, and the lines that belong to all of them."""

    grids: tuple[Grid, ...]
    ending: tuple[str, ...] = ()

    @classmethod
    def of(cls, grids: Sequence[Grid]) -> TableReport:
        """Return a report in which lines that all of several grids have below, and equal lists of notes, come once."""
        if len(grids) < 2:
            return cls(tuple(grids))
        lines = [line for line in grids[0].legend if all(line in grid.legend for grid in grids)]
        notes = grids[0].notes if len({grid.notes for grid in grids}) == 1 else ()
        kept = (
            replace(
                grid,
                legend=tuple(line for line in grid.legend if line not in lines),
                notes=() if notes else grid.notes,
            )
            for grid in grids
        )
        return cls(tuple(kept), (*lines, *numbered(notes)))


class Notes:
    """Collects footnotes; equal texts share a number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._numbers)

    def number(self, texts: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of footnotes, new ones for new texts."""
        return tuple(self._numbers.setdefault(clean(text), len(self._numbers) + 1) for text in texts)


def numbered(notes: Sequence[str]) -> list[str]:
    return [f"[{number}] {note}" for number, note in enumerate(notes, 1)]


def marks(notes: Sequence[int]) -> str:
    return "".join(f" [{note}]" for note in notes)
