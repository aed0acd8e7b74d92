"""Which rows of a board are meant: by model, objective, suite, metric, kind and age."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.leaderboard.labels import clean, is_row
from emobench.leaderboard.query.view import wanted
from emobench.leaderboard.store import Row

_PUBLISHED = "The papers' own numbers are a board of their own: `emobench leaderboard show --published`."
KNOWN = 20
"""Names that an error lists at most: the nearest of them."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

NAMES: dict[str, Callable[[Row], tuple[str, ...]]] = {
    "model": lambda row: (row.model,),
    "objective": lambda row: (row.objective, row.label),
    "suite": lambda row: (row.suite, f"{row.suite}@{row.suite_version}"),
    "kind": lambda row: (row.kind,),
    "metric": lambda row: row.metrics,
}
"""Key of a query, and option of `leaderboard show` -> the names that a row has."""


@dataclass(frozen=True, kw_only=True)
class Filters:
    """`objectives` and `metrics` mean any of theirs; `suite` is a name or name@version, `since` a date or 7d, 12h."""

    model: str | None = None
    objectives: tuple[str, ...] = ()
    suite: str | None = None
    metrics: tuple[str, ...] = ()
    kind: str | None = None
    since: str | None = None

    def of(self, rows: Sequence[Row], now: datetime | None = None) -> list[Row]:
        """Return the rows that are meant, in their order.

        Raises UnknownNameError for a name that no row has, and ConfigError for a `since` that is no time, and where
        each filter alone has rows and all together have none.
        """
        single = {key: (name,) for key in ("model", "suite", "kind") if (name := getattr(self, key)) is not None}
        kept, given = list(rows), []
        for key, names in {**single, "objective": self.objectives, "metric": self.metrics}.items():
            if names and rows:
                ids = {row.id for name in names for row in matching(rows, key, name)}
                kept = [row for row in kept if row.id in ids]
                given.append(f"--{key} {', '.join(names)}")
        if self.since is not None and rows:
            oldest, newest = instant(self.since, now or datetime.now(UTC)), max(map(_created, rows))
            if newest < oldest:
                raise ConfigError(f"--since {self.since}: no entry is that new; the newest is of {newest:%Y-%m-%d}.")
            kept = [row for row in kept if _created(row) >= oldest]
            given.append(f"--since {self.since}")
        if rows and not kept:
            raise ConfigError(f"No entry has all of {', '.join(given)}, though each alone has some; leave one out.")
        return kept


def matching(rows: Sequence[Row], key: str, name: str, hint: str = "") -> list[Row]:
    """Return the rows that have a name (of an objective also its setting or an id; of metrics also a pattern).

    Raises UnknownNameError with the nearest names where none has it.
    """
    found = [row for row in rows if _has(row, key, name)]
    if found:
        return found
    names: Iterable[str] = (other for row in rows for other in NAMES[key](row))
    if key == "metric" and "/" not in name:
        names = (other.split("/", 1)[1] for other in names)
    known = sorted({clean(other) for other in names})
    hint = hint or (_PUBLISHED if (key, name) == ("kind", "published") else "")
    hint = f"These are the nearest of {len(known)}." if len(known) > KNOWN else hint
    near = difflib.get_close_matches(name, known, n=KNOWN, cutoff=0)
    raise UnknownNameError(f"entry of the {key}", name, near, hint=hint)


def _has(row: Row, key: str, name: str) -> bool:
    if key == "objective":
        return is_row(name, row.id, row.objective, row.label)
    return any(wanted(metric, [name]) for metric in row.metrics) if key == "metric" else name in NAMES[key](row)


def instant(text: str, now: datetime) -> datetime:
    """Return the time that a date, a date with a time (local where it names no zone), or an age such as 7d means.

    >>> instant("12h", datetime(2026, 1, 2, 18, tzinfo=UTC))
    datetime.datetime(2026, 1, 2, 6, 0, tzinfo=datetime.timezone.utc)
    """
    age = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    try:
        if age:
            return now - timedelta(**{_UNITS[age[2]]: int(age[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise ConfigError(f"--since {text}: expected a date such as 2026-01-31, or an age such as 7d or 12h.") from None


def _created(row: Row) -> datetime:
    created = datetime.fromisoformat(row.created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)
