"""A table that is too wide goes on below its cells, then its labels, then in a second table; no name is broken."""

from __future__ import annotations

import pytest
from rich.console import Console

from emobench.report.render.grid import Cell, Column, Grid, TableReport
from emobench.report.render.terminal import ReportView

NAMES = "wikitext2/mauve_star", "wikitext2/ppl_test", "mean of 2 tasks, accuracy"
COLUMNS = (
    Column("", "mle"),
    Column("", "difference"),
    Column("", "95 % interval", below=True),
    Column("", "verdict", left=True),
)
GRID = Grid(
    title="emo against mle",
    corner="metric",
    turned="",
    stars=False,
    rows=tuple(Cell(f"{name} (%) ↑") for name in NAMES),
    columns=COLUMNS,
    cells=((Cell("76.2"), Cell("+3.4"), Cell("[-0.7, +7.2]"), Cell("undetermined", notes=(1,))),) * 3,
)


def lines(width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as shown:
        console.print(ReportView(TableReport((GRID,))))
    return [line.rstrip() for line in shown.get().splitlines()]


@pytest.mark.parametrize("width", range(34, 120, 3))
def test_names_and_numbers_stay_whole(width: int) -> None:
    shown = lines(width)
    assert max(map(len, shown)) <= width
    words = " ".join(shown).split()
    for name, places in (("wikitext2/", 2), ("ppl_test", 1), ("mauve_star", 1), ("accuracy", 1)):
        assert sum(name in word for word in words) >= places, name
    for text in ("+3.4", "76.2", "undetermined", "[1]", "+7.2]"):
        assert words.count(text) == 3, text


def test_the_first_way_that_fits_is_taken() -> None:
    def head(width: int) -> str:
        return next(line for line in lines(width) if line.startswith("metric"))

    assert head(100).split() == ["metric", "mle", "difference", "95", "%", "interval", "verdict"]
    assert "95 % interval" in head(74)
    assert "undetermined [1]" in "\n".join(lines(74))
    assert "undetermined [1]" not in "\n".join(lines(64))
    assert "verdict" in head(64)
    assert "verdict" not in head(44)
