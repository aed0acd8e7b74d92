"""The sampling units of examples and of corpora: examples that were drawn together.

Examples with equal content are one unit: a text that a data set has 32 times is one draw, not 32. Case and white space
make no difference. Data may name larger units, such as a passage or a subject, and equal content in two of these joins
both. Units are therefore the connected components of a graph whose nodes are examples, contents and names.

The sampling units of a corpus are its documents. A row is a document or a part of one. Neighbouring paragraphs are not
independent: on WikiText-2 the difference of two models has a correlation of .26 to .35 between neighbouring blocks of
256 tokens, and of .10 to .20 between blocks ten apart. Intervals and tests therefore resample units of independent
text. The name of a unit is its first row, "row 17", its name in the file, or the digest of its text. Documents with the
same text are one unit.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

Documents = Literal["rows", "beginnings", "headings", "sentences", "stream"]
"""How rows form documents (`units_of_rows`)."""
HEADING = re.compile(r"\s*= [^=]+ =\s*")
"""The title of a WikiText article. Headings inside an article have more equals signs."""
BEGINNING = 64
"""Rows with the same first characters are one unit, such as stories on one prompt, or copies of a text."""
RUNS = 10
"""Number of runs. Longer runs depend less on their neighbours: with the correlations above, tests over 25 runs reject 9
to 15 % of true nulls, tests over 10 runs at most 7 % (`tests/benchmarks/evidence/null_comparisons.py`)."""
RUN_CHARACTERS = {"sentences": 40_000, "stream": 100_000}
"""Smallest length of a run: it contains several documents. The sentences of a newspaper form short documents."""


@functools.lru_cache(maxsize=16)  # the requests of one question begin with the same long prompt
def plain_text(text: str) -> str:
    """Return a text in lower case with single spaces: copies of a text often differ by more spaces or by capitals."""
    return " ".join(text.split()).casefold()


def text_digest(*texts: str) -> str:
    """Return the first 12 hex digits of the sha256 of texts as `plain_text`, joined by the unit separator, U+001F."""
    return _digest("\x1f".join(map(plain_text, texts)))


def content_digest(value: Any) -> str:
    """Return the digest of a value of JSON, whose texts count as `plain_text`."""
    return _digest(json.dumps(_plain(value), sort_keys=True, default=str))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _plain(value: Any) -> Any:
    """Return a value of JSON with its texts as `plain_text`."""
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return {str(key): _plain(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def joined_units(
    contents: Mapping[str, Collection[str]], named: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the unit of each example that was drawn together with others.

    `contents` has the digests of what a model reads of each example, without its target: examples with a digest in
    common are one unit. `named` has the units that the data name. A unit is called by the first of its names, or else
    by the first of its digests, in alphabetical order, so that its name does not depend on the order of the examples.
    """
    marks: dict[str, list[str]] = {}
    parents = {}

    def root(name: str) -> str:
        """Return the representative of a name's set."""
        while (parent := parents.setdefault(name, name)) != name:
            parents[name] = name = parents[parent]
        return name

    for example in dict.fromkeys([*contents, *named]):
        marks[example] = [f"text {digest}" for digest in contents.get(example, ())]
        if example in named:
            marks[example].append(named[example])
        for mark in marks[example]:
            parents[root(f"mark {mark}")] = root(f"example {example}")
    members = defaultdict(list)
    for example in marks:
        members[root(f"example {example}")].append(example)
    units = {}
    for examples in members.values():
        names = [named[example] for example in examples if example in named]
        if not names:
            names = [mark for example in examples for mark in marks[example]]
        if len(examples) > 1:
            units |= dict.fromkeys(examples, min(names))
    return units


def units_of_rows(texts: Sequence[str], documents: Documents, named: Sequence[str] | None = None) -> list[str]:
    """Return the unit of each row. A blank row belongs to the unit before it.

    `named` has the document of each row, if the file names them. Otherwise, by `documents`:
    "rows": each row is a document.
    "beginnings": each row is a document; rows that begin with the same 64 characters are one unit.
    "headings": a row such as "= Title =" begins a document.
    "sentences", "stream", or "headings" without any heading: the ends of documents are not known, so 10 runs of
    consecutive rows of about equal length replace them, or fewer for a short text. The middle of a row decides.
    """
    if named is not None:
        return _joined(texts, named)
    if documents == "headings" and not any(map(HEADING.fullmatch, texts)):
        documents = "stream"
    total, before = sum(map(len, texts)), 0
    runs = min(RUNS, max(1, total // RUN_CHARACTERS.get(documents, 1)))
    unit = f"text {text_digest('')}" if documents == "rows" else "row 0"
    units, first_rows = [], dict[object, str]()
    for row, text in enumerate(texts):
        if documents in RUN_CHARACTERS:
            run = (2 * before + len(text)) * runs // max(1, 2 * total)
            unit = first_rows.setdefault(run, f"row {row}")
            before += len(text)
        elif documents == "headings" and HEADING.fullmatch(text):
            unit = f"row {row}"
        elif documents == "rows" and text.strip():
            unit = f"text {text_digest(text)}"
        elif documents == "beginnings" and text.strip():
            unit = first_rows.setdefault(text.strip()[:BEGINNING], f"row {row}")
        units.append(unit)
    return _joined(texts, units)


def _joined(texts: Sequence[str], units: Sequence[str]) -> list[str]:
    """Return the units; units of equal text get the name of the first. Blank rows do not count."""
    parts: dict[str, list[str]] = {}
    for text, unit in zip(texts, units, strict=True):
        own = parts.setdefault(unit, [])
        if text.strip():
            own.append(plain_text(text))
    first: dict[tuple[str, ...], str] = {}
    names = {unit: first.setdefault(tuple(own), unit) for unit, own in parts.items()}
    return [names[unit] for unit in units]
