"""A table before it is drawn: a row for each entry, a column for each metric, and what stands above and below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

Style = Literal["", "own", "older", "better", "worse"]


@dataclass(frozen=True)
class Cell:
    """`marked`: a star, for the best of a column or a difference beyond noise."""

    text: str
    marked: bool = False
    notes: tuple[int, ...] = ()
    style: Style = ""

    def __str__(self) -> str:
        return self.text + ("*" if self.marked else "") + marks(self.notes)


@dataclass(frozen=True)
class Column:
    """`unit` ends in the arrow that points to the better side; `task` is empty where all columns are of one.

    `size` is the number of examples behind a value, such as "n=1821".
    """

    task: str
    metric: str
    unit: str = ""
    size: str = ""
    notes: tuple[int, ...] = ()

    def lines(self) -> str:
        """Return the header on several lines, for a narrow column."""
        last = " ".join(filter(None, [self.unit, self.size])) + marks(self.notes)
        return "\n".join(filter(None, [self.task, self.metric, last.strip()]))

    def __str__(self) -> str:
        name = "/".join(filter(None, [self.task, self.metric]))
        return " ".join(filter(None, [name, self.unit, self.size])) + marks(self.notes)


@dataclass(frozen=True)
class Label:
    text: str
    style: Style = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Grid:
    """`cells[row][column]`; `subtitle` names the conditions that all rows share, and `notes` are numbered from 1."""

    title: str
    subtitle: tuple[str, ...]
    rows: tuple[Label, ...]
    columns: tuple[Column, ...]
    cells: tuple[tuple[Cell, ...], ...]
    legend: tuple[str, ...]
    notes: tuple[str, ...]


def marks(notes: Sequence[int]) -> str:
    return "".join(f" [{note}]" for note in notes)


def said_once(grids: Sequence[Grid]) -> tuple[list[Grid], list[str]]:
    """Return several grids without what all of them say below, and that: legend lines, and equal lists of notes."""
    if len(grids) < 2:
        return list(grids), []
    lines = [line for line in grids[0].legend if all(line in grid.legend for grid in grids)]
    notes = grids[0].notes if len({grid.notes for grid in grids}) == 1 else ()
    kept = [
        replace(
            grid,
            legend=tuple(line for line in grid.legend if line not in lines),
            notes=() if notes else grid.notes,
        )
        for grid in grids
    ]
    return kept, [*lines, *(f"[{number}] {note}" for number, note in enumerate(notes, 1))]
