"""Tables of text keep names whole at any width, and show every text: beside its row, or below it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from emobench.cli.terminal.tables import TextTable

HEADER = "name", "tasks", "model", "what"
ROWS = [
    ("generation", "generation/wikitext2, generation/ptb", "smollm2-135m-instruct", "Open-ended generation."),
    ("nlu", "sst2, trec", "", "Eight tasks that are answered from retrieved examples."),
]
SUITES = TextTable("Suites", HEADER, ROWS, ("name", "model"))


def lines(width: int, table: TextTable = SUITES) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", range(24, 140, 4))
def test_no_word_is_broken_and_every_text_is_shown(width: int) -> None:
    shown = lines(width)
    assert max(map(len, shown)) <= width
    words = " ".join(shown).split()
    expected = [word for row in ROWS for text in row for word in text.split()]
    assert all(words.count(word) >= expected.count(word) for word in expected if len(word) <= width - 4)


def test_a_column_that_does_not_fit_is_below_its_rows_with_its_name() -> None:
    assert lines(120)[1].split() == list(HEADER)
    shown = lines(60)
    assert shown[1].split() == ["name", "model", "what"]
    assert "    tasks: generation/wikitext2, generation/ptb" in shown
    assert lines(24)[1].split() == ["name"]
    assert "    model:" in "\n".join(lines(24))


def test_a_word_of_more_than_half_a_line_may_be_broken() -> None:
    shown = lines(40, TextTable("", ("what", "place"), [("model", "/" + "x" * 60)]))
    assert shown[0].split() == ["what", "place"]
    assert re.sub(r"\s", "", "".join(shown[1:])) == "model/" + "x" * 60
