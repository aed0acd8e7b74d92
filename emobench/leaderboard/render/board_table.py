"""Leaderboard tables for a terminal (rich), for Markdown and as JSON, from the same standings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from emobench.config import to_plain
from emobench.leaderboard.query.standings import Standings, standings
from emobench.leaderboard.query.view import View
from emobench.leaderboard.render.board_grid import NO_ENTRIES, grids
from emobench.leaderboard.render.grid import Cell, Grid, Label, said_once
from emobench.leaderboard.render.layout import GAP, Sheet, fit
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesOf
from emobench.leaderboard.schema.labels import markdown_text

SCHEMA = 2
"""Of the document that `to_json` returns; its entries have a schema of their own."""

MARKDOWN_WIDTH = 110
_STYLES = {"": "", "own": "bold", "older": "dim", "better": "green", "worse": "red"}


def render(entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None) -> RenderableType:
    """Return what rich prints: a table for each group of comparable entries, fitted to the width it is printed at.

    `examples_of` gives an entry's per-example results (from `examples.entry_examples`), which tests pair by item.
    """
    view = view or View()
    if not entries:
        return Text(NO_ENTRIES)
    found, ending = said_once(grids(standings(entries, examples_of, view), view))
    return Group(*map(GridView, found), *(Text(line, style="dim") for line in ending))


def markdown(entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None) -> str:
    """Return the same tables as Markdown, with what is marked in bold."""
    view = view or View()
    if not entries:
        return NO_ENTRIES + "\n"
    found, ending = said_once(grids(standings(entries, examples_of, view), view))
    return "\n".join([*map(grid_markdown, found), *(f"{markdown_text(line)}\n" for line in ending)])


def to_json(
    entries: Sequence[Entry], examples_of: ExamplesOf | None = None, view: View | None = None
) -> dict[str, Any]:
    """Return {"schema", "groups"}, with for each group of comparable entries:

    - `suite`, `model` and the whole `entries`, in the order shown; `older_code`: ids;
    - `best`: metric, or "mean/<metric>" -> id or null; `untested`: metric -> why its rows cannot be told apart,
      whatever their values;
    - `ranks`, null where nothing is ranked: `metric` and `tasks`; by id the `places` and the `means` over tasks; and
      in `why`, by id or under "all", why a row has no place;
    - `baseline`: an id or null; `differences`: id -> metric -> `Contrast`, with "mean" for the mean over tasks.

    Fractions are fractions, and differences of perplexities log ratios.
    """
    return {"schema": SCHEMA, "groups": [_plain(found) for found in standings(entries, examples_of, view)]}


def _plain(found: Standings) -> dict[str, Any]:
    first = to_plain(found.rows[0])
    ranks = found.ranking
    return {
        "suite": first["suite"],
        "model": first["model"],
        "entries": to_plain(found.rows),
        "best": to_plain(found.best),
        "untested": to_plain(found.untested),
        "older_code": sorted(found.older),
        "ranks": ranks
        and {
            "metric": ranks.name,
            "tasks": [column.split("/", 1)[0] for column in ranks.columns],
            "places": dict(ranks.places),
            "means": {key: sum(values) / len(values) for key, values in ranks.means.items()},
            "why": {**ranks.unranked, **({"all": ranks.remark} if ranks.remark else {})},
        },
        "baseline": found.baseline.id if isinstance(found.baseline, Entry) else None,
        "differences": to_plain(found.differences),
    }


@dataclass(frozen=True)
class GridView:
    """Draws a grid with rich at whatever width it is given."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.grid.title, style="bold")
        for line in self.grid.subtitle:
            yield Text(line, style="dim")
        for sheet in fit(self.grid, options.max_width):
            yield Text()
            yield _rich_table(sheet)
        yield Text()
        for line in self.grid.legend:
            yield Text(line, style="dim")
        for number, note in enumerate(self.grid.notes, 1):
            yield Text(f"[{number}] {note}", style="dim")
        yield Text()


def _rich_table(sheet: Sheet) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, GAP - 1, 0, 0), show_edge=False)
    table.add_column(Text(sheet.corner), overflow="fold", vertical="bottom")
    for head in sheet.heads:
        table.add_column(_styled(head), justify="right", overflow="fold", vertical="bottom")
    for label, row, texts in zip(sheet.labels, sheet.cells, zip(*sheet.texts(), strict=True), strict=True):
        table.add_row(_styled(label), *(_styled(cell, text) for cell, text in zip(row, texts, strict=True)))
    return table


def _styled(shown: Label | Cell, text: str | None = None) -> Text:
    bold = "bold " if isinstance(shown, Cell) and shown.marked else ""
    return Text(str(shown) if text is None else text, style=bold + _STYLES[shown.style])


def grid_markdown(grid: Grid) -> str:
    """Return a grid's tables as Markdown."""
    lines = [f"**{markdown_text(grid.title)}**", "", *(markdown_text(line) + "\n" for line in grid.subtitle)]
    for sheet in fit(grid, MARKDOWN_WIDTH):
        heads = [head.replace("\n", " ").strip() for head in (sheet.corner, *map(str, sheet.heads))]
        lines += [f"| {' | '.join(map(markdown_text, heads))} |", "|---|" + "---:|" * len(sheet.heads)]
        for label, row in zip(sheet.labels, sheet.cells, strict=True):
            texts = [f"**{markdown_text(str(cell))}**" if cell.marked else markdown_text(str(cell)) for cell in row]
            lines.append(f"| {markdown_text(str(label).strip())} | {' | '.join(texts)} |")
        lines.append("")
    lines.append("\n\n".join(map(markdown_text, grid.legend)))
    lines += [f"\n{markdown_text(f'[{number}] {note}')}" for number, note in enumerate(grid.notes, 1)]
    return "\n".join(lines) + "\n"
