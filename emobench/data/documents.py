"""The sampling units of a corpus: its documents. A row is a document or a part of one.

Neighbouring paragraphs are not independent: on WikiText-2 the difference of two models has a correlation of .26 to .35
between neighbouring blocks of 256 tokens, and of .10 to .20 between blocks ten apart. Intervals and tests therefore
resample units of independent text. The name of a unit is its first row, "row 17", or its name in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from emobench.data.sources import Documents

HEADING = re.compile(r"\s*= [^=]+ =\s*")
"""The title of a WikiText article. Headings inside an article have more equals signs."""
BEGINNING = 64
"""Rows with the same first characters are one unit, such as stories on one prompt, or copies of a text."""
RUNS = 10
"""Number of runs. Longer runs depend less on their neighbours: with the correlations above, tests over 25 runs reject 9
to 15 % of true nulls, tests over 10 runs at most 7 % (`tests/benchmarks/evidence/null_comparisons.py`)."""
RUN_CHARACTERS: dict[Documents, int] = {"sentences": 40_000, "unknown": 100_000, "headings": 100_000}
"""Smallest length of a run: it contains several documents. The sentences of a newspaper form short documents."""


def units_of_rows(texts: Sequence[str], documents: Documents) -> list[str]:
    """Return the unit of each row. A blank row belongs to the unit before it.

    "rows": each row is a document. "headings": a row such as "= Title =" begins a document. "sentences", "unknown", or
    "headings" without any heading: the ends of documents are not known, so 10 runs of consecutive rows of about equal
    length replace them, or fewer for a short text.
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
    unit, first_rows = "row 0", dict[str, str]()
    for row, text in enumerate(texts):
        if text.strip():
            unit = first_rows.setdefault(text.strip()[:BEGINNING], f"row {row}")
        yield unit


def _runs(texts: Sequence[str], shortest: int) -> list[str]:
    """Return the run of each row. The middle of a row decides."""
    total = sum(map(len, texts))
    count = min(RUNS, max(1, total // shortest))
    units, first_rows, before = [], dict[int, str](), 0
    for row, text in enumerate(texts):
        run = (2 * before + len(text)) * count // max(1, 2 * total)
        units.append(first_rows.setdefault(run, f"row {row}"))
        before += len(text)
    return units
