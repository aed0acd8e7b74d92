"""CSV with a header, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from emobench.leaderboard.labels import clean

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Begin a formula in a spreadsheet; the wide ones in East Asian editions."""


def csv_text(fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV; other keys than `fields` are left out, and lists are joined by spaces."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """Return a value as a cell: numbers as they are, and text in one line that no spreadsheet takes for a formula."""
    if isinstance(value, (list, tuple)):
        joined = " ".join(map(str, value))
        return _text(joined) if any(isinstance(item, str) for item in value) else joined
    return _text(value) if isinstance(value, str) else value


def _text(text: str) -> str:
    shown = clean(text)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown
