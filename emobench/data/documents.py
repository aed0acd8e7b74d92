"""The sampling units of a corpus: its documents. A row is a document or a part of one.

Neighbouring paragraphs are not independent: on WikiText-2 the difference of two models has a correlation of .26 to .35
between neighbouring blocks of 256 tokens, and of .10 to .20 between blocks ten apart. Intervals and tests therefore
resample units of independent text. The name of a unit is its first row, "row 17", its name in the file, or the digest
of its text. Documents with the same text are one unit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from emobench.data.sampling_units import plain_text, text_digest
from emobench.data.sources import Documents

HEADING = re.compile(r"\s*= [^=]+ =\s*")
"""The title of a WikiText article. Headings inside an article have more equals signs."""
BEGINNING = 64
"""Rows with the same first characters are one unit, such as stories on one prompt, or copies of a text."""
RUNS = 10
"""Number of runs. Longer runs depend less on their neighbours: with the correlations above, tests over 25 runs reject 9
to 15 % of true nulls, tests over 10 runs at most 7 % (`tests/benchmarks/evidence/null_comparisons.py`)."""
RUN_CHARACTERS: dict[Documents, int] = {"sentences": 40_000, "stream": 100_000, "headings": 100_000}
"""Smallest length of a run: it contains several documents. The sentences of a newspaper form short documents."""


def units_of_rows(texts: Sequence[str], documents: Documents, named: Sequence[str] | None = None) -> list[str]:
    """Return the unit of each row. A blank row belongs to the unit before it.

    `named` has the document of each row, if the file names them. Otherwise, by `documents`:
    "rows": each row is a document.
    "beginnings": each row is a document; rows that begin with the same 64 characters are one unit.
    "headings": a row such as "= Title =" begins a document.
    "sentences", "stream", or "headings" without any heading: the ends of documents are not known, so 10 runs of
    consecutive rows of about equal length replace them, or fewer for a short text.
    """
    if named is not None:
        units = list(named)
    elif documents == "rows":
        units = list(_rows(texts))
    elif documents == "beginnings":
        units = list(_beginnings(texts))
    elif documents == "headings" and any(HEADING.fullmatch(text) for text in texts):
        units = list(_from_headings(texts))
    else:
        units = _runs(texts, RUN_CHARACTERS[documents])
    return _joined(texts, units)


def _rows(texts: Sequence[str]) -> Iterator[str]:
    unit = f"text {text_digest('')}"
    for text in texts:
        if text.strip():
            unit = f"text {text_digest(text)}"
        yield unit


def _beginnings(texts: Sequence[str]) -> Iterator[str]:
    unit, first_rows = "row 0", dict[str, str]()
    for row, text in enumerate(texts):
        if text.strip():
            unit = first_rows.setdefault(text.strip()[:BEGINNING], f"row {row}")
        yield unit


def _from_headings(texts: Sequence[str]) -> Iterator[str]:
    unit = "row 0"
    for row, text in enumerate(texts):
        if HEADING.fullmatch(text):
            unit = f"row {row}"
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


def _joined(texts: Sequence[str], units: Sequence[str]) -> list[str]:
    """Return the units with one name for those of equal text: the name of the first. Blank rows do not count."""
    parts: dict[str, list[str]] = {}
    for text, unit in zip(texts, units, strict=True):
        own = parts.setdefault(unit, [])
        if text.strip():
            own.append(plain_text(text))
    first: dict[tuple[str, ...], str] = {}
    names = {unit: first.setdefault(tuple(own), unit) for unit, own in parts.items()}
    return [names[unit] for unit in units]
