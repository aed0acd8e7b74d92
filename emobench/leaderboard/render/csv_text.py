"""CSV with a header, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emobench.leaderboard.schema.labels import clean


def csv_text(fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV; other keys than `fields` are left out, and lists are joined by spaces."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a value as a cell of CSV, in which no text is one that a spreadsheet takes for a formula."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = clean(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
