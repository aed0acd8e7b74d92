"""What was sampled when a corpus was made: the documents, which its rows are, or are parts of.

Neighbouring paragraphs are not independent: on WikiText-2 the difference of two models correlates by .26 to .35 from
one block of 256 tokens to the next, and by .10 to .20 ten blocks on. So intervals and tests are over units of
independent text. A unit is named after its first row, "row 17", or after its own name in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from emobench.data.sources import Documents

HEADING = re.compile(r"\s*= [^=]+ =\s*")
"""The title of an article of WikiText; headings within it have more equals signs."""
BEGINNING = 64
"""Characters: rows that begin alike are of one unit, such as the stories of one writing prompt, or copies of a text."""
RUNS = 10
"""Few, as runs depend on their neighbours the less, the longer they are: of 25, with the correlations above, 9 to 15 %
of true nulls are rejected, of 10 at most 7 % (`tests/benchmarks/coverage_of_tests.py`)."""
RUN_CHARACTERS: dict[Documents, int] = {"sentences": 40_000, "unknown": 100_000, "headings": 100_000}
"""What a run has at least: several documents, short ones where rows are the sentences of a newspaper."""


def units_of_rows(texts: Sequence[str], documents: Documents) -> list[str]:
    """Return the unit of each row. A blank row is of the unit before it.

    "rows": each row is a document. "headings": a row such as "= Title =" begins one. "sentences", "unknown", or where
    no row is a heading: as the corpus does not say where documents end, consecutive runs of rows stand for them, 10 of
    about equal length, fewer of a short text.
    """
    if documents == "rows":
        return list(_rows(texts))
    known = documents == "headings" and any(HEADING.fullmatch(text) for text in texts)
    return list(_from_headings(texts)) if known else _runs(texts, RUN_CHARACTERS[documents])


def _from_headings(texts: Sequence[str]) -> Iterator[str]:
    unit = "row 0"
    for row, text in enumerate(texts):
        if HEADING.fullmatch(text):
            unit = f"row {row}"
        yield unit


def _rows(texts: Sequence[str]) -> Iterator[str]:
    unit, begun = "row 0", dict[str, str]()
    for row, text in enumerate(texts):
        if text.strip():
            unit = begun.setdefault(text.strip()[:BEGINNING], f"row {row}")
        yield unit


def _runs(texts: Sequence[str], shortest: int) -> list[str]:
    """Return the run of each row, by where its middle lies."""
    total = sum(map(len, texts))
    count = min(RUNS, max(1, total // shortest))
    found, first, before = [], dict[int, str](), 0
    for row, text in enumerate(texts):
        run = (2 * before + len(text)) * count // max(1, 2 * total)
        found.append(first.setdefault(run, f"row {row}"))
        before += len(text)
    return found
