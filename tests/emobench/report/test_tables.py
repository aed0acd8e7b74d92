"""A table that is too wide is turned, or goes on in a second table; no name or number is broken."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shown import printed

from emobench.report.tables import Cell, Report, Table

NAMES = "wikitext2/mauve_star", "wikitext2/ppl_test", "mean of 2 tasks, accuracy"
CELLS = (Cell("76.2"), Cell("+3.4*", "bold"), Cell("[-0.7, +7.2]"), Cell("undetermined [1]"))
TABLE = Table(
    title="emo against mle",
    columns=("metric", "mle", "difference", "95 % interval", "verdict"),
    rows=tuple((Cell(f"{name} (%) ↑"), *CELLS) for name in NAMES),
    left=("verdict",),
)


def lines(width: int, table: Table = TABLE) -> list[str]:
    return [line.rstrip() for line in printed(Report((table,)), width).splitlines()]


@pytest.mark.parametrize("width", range(46, 120, 15))
def test_names_and_numbers_stay_whole(width: int) -> None:
    shown = lines(width)
    assert max(map(len, shown)) <= width
    words = " ".join(shown).split()
    for name in ("wikitext2/ppl_test", "wikitext2/mauve_star", "accuracy"):
        assert name in words
    for text in ("+3.4*", "76.2", "undetermined", "[1]", "+7.2]"):
        assert words.count(text) == 3, text


def test_columns_are_shared_evenly_by_as_few_tables_as_fit() -> None:
    def heads(width: int) -> list[str]:
        return [" ".join(line.split()) for line in lines(width) if line.startswith("metric")]

    assert heads(100) == ["metric mle difference 95 % interval verdict"]
    assert heads(80) == ["metric mle difference", "metric 95 % interval verdict"]
    assert heads(50) == [f"metric {name}" for name in TABLE.columns[1:]]


def test_a_table_is_turned_if_it_then_fits() -> None:
    shown = lines(
        72,
        replace(TABLE, columns=("objective", *("a_long_task/\naccuracy",) * 4), rows=TABLE.rows[:1], across="metric"),
    )
    assert shown[2].split() == ["metric", *f"{NAMES[0]} (%) ↑".split()]
    assert shown[4].split() == ["a_long_task/accuracy", "76.2"]


def test_text_is_escaped_and_bold_marked() -> None:
    table = replace(TABLE, rows=((Cell("a_b|c"), *CELLS),))
    report = Report((table,), ("100 % sure",))
    assert "| a\\_b\\|c | 76.2 | **+3.4\\*** | \\[-0.7, +7.2\\] | undetermined \\[1\\] |" in report.markdown()
    assert "a\\_b|c & 76.2 & \\textbf{+3.4*} & {[}$-$0.7, +7.2] & undetermined {[}1] \\\\" in report.latex()
    assert report.latex().endswith("% 100 % sure\n")
    assert table.frame.loc[0, "difference"] == "+3.4*"
