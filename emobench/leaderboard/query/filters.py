"""Which rows of a board are meant: by model, objective, suite, metric, kind and age."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from emobench.errors import ConfigError, UnknownNameError
from emobench.leaderboard.query.view import wanted
from emobench.leaderboard.schema.labels import clean, is_row
from emobench.leaderboard.store.row import Row

_PUBLISHED = "The papers' own numbers are a board of their own: `emobench leaderboard show --published`."
KNOWN = 20
"""Names that an error lists at most: the nearest of them."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
        if not rows:
            return []
        tests = [*self._tests(rows), *self._age(rows, now or datetime.now(UTC))]
        found = [row for row in rows if all(test(row) for _, test in tests)]
        if not found:
            given = ", ".join(name for name, _ in tests)
            raise ConfigError(f"No entry has all of {given}, though each alone has some; leave one out.")
        return found

    def _tests(self, rows: Sequence[Row]) -> Iterable[tuple[str, Callable[[Row], bool]]]:
        for metric in self.metrics:
            names = (name if "/" in metric else name.split("/", 1)[1] for row in rows for name in row.metrics)
            _known("metric", metric, rows, lambda r, m=metric: any(wanted(x, [m]) for x in r.metrics), names)
        for text in self.objectives:
            labels = (name for row in rows for name in (row.objective, row.label))
            _known("objective", text, rows, lambda r, t=text: is_row(t, r.id, r.objective, r.label), labels)
        if self.model is not None:
            yield _known("model", self.model, rows, lambda r: r.model == self.model, (r.model for r in rows))
        if self.suite is not None:
            suites = (name for row in rows for name in (row.suite, _versioned(row)))
            yield _known("suite", self.suite, rows, lambda r: self.suite in (r.suite, _versioned(r)), suites)
        if self.kind is not None:
            hint = _PUBLISHED if self.kind == "published" else ""
            yield _known("kind", self.kind, rows, lambda r: r.kind == self.kind, (r.kind for r in rows), hint)
        if self.objectives:
            given = f"--objective {', '.join(self.objectives)}"
            yield given, lambda r: any(is_row(text, r.id, r.objective, r.label) for text in self.objectives)
        if self.metrics:
            yield f"--metric {', '.join(self.metrics)}", lambda r: any(wanted(m, self.metrics) for m in r.metrics)

    def _age(self, rows: Sequence[Row], now: datetime) -> Iterable[tuple[str, Callable[[Row], bool]]]:
        if self.since is not None:
            oldest = instant(self.since, now)
            newest = max(_created(row) for row in rows)
            if newest < oldest:
                raise ConfigError(f"--since {self.since}: no entry is that new; the newest is of {newest:%Y-%m-%d}.")
            yield f"--since {self.since}", lambda row: _created(row) >= oldest


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


def _known(
    what: str, given: str, rows: Sequence[Row], test: Callable[[Row], bool], names: Iterable[str], hint: str = ""
) -> tuple[str, Callable[[Row], bool]]:
    """Return a filter's option and its test; raises UnknownNameError where no row passes it."""
    if not any(map(test, rows)):
        known = sorted({clean(name) for name in names})
        near = difflib.get_close_matches(given, known, n=KNOWN, cutoff=0)
        hint = f"These are the nearest of {len(known)}." if len(known) > KNOWN else hint
        raise UnknownNameError(f"entry of the {what}", given, near, hint=hint)
    return f"--{what} {given}", test


def _versioned(row: Row) -> str:
    return f"{row.suite}@{row.suite_version}"


def _created(row: Row) -> datetime:
    created = datetime.fromisoformat(row.created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)
