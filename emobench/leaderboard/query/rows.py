"""Which rows of a board a reader means: filters, references to entries, and the page of rows that is shown at once."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from emobench.core.errors import ConfigError, EmobenchError, UnknownNameError
from emobench.leaderboard.boards import PUBLISHED, split_reference
from emobench.leaderboard.comparable import differences, groups, older_code
from emobench.leaderboard.entry import Entry, Provenance
from emobench.leaderboard.labels import clean, is_row, wanted
from emobench.leaderboard.query.newest import older_groups
from emobench.leaderboard.store import Leaderboard, Row

FORMS = (
    "Give an entry's id or its first 4 digits or more, an objective (emo) or a query (model=gpt2,objective=emo), of a "
    "study that ships as studies:smollm2/emo, or a paper's row (published:emo-table3/llama-7b/emo)."
)
ANY = ""
"""The reference that means all entries of a board."""
NEAREST = 20
"""Names that an error lists at most."""
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

KEYS = ("model", "objective", "suite", "kind", "metric")
"""Keys of a query, and options of `leaderboard show`."""


def names_of(row: Row, key: str) -> Sequence[str]:
    """Return the names by which a key of a query means a row."""
    if key == "objective":
        return row.objective, row.label
    if key == "suite":
        return row.suite, f"{row.suite}@{row.suite_version}"
    return row.metrics if key == "metric" else (getattr(row, key),)


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
        no row has all that is given.
        """
        kept, given = list(rows), []
        named = {"objective": self.objectives, "metric": self.metrics}
        named |= {"model": self.model, "suite": self.suite, "kind": self.kind}
        for key, value in named.items():
            names = [value] if isinstance(value, str) else value
            if names and rows:
                ids = set()
                for name in names:
                    ids.update(row.id for row in matching(rows, key, name))
                kept = [row for row in kept if row.id in ids]
                given.append(f"--{key} {', '.join(names)}")
        if self.since is not None:
            oldest = instant(self.since, now or datetime.now(UTC))
            kept = [row for row in kept if created_at(row) >= oldest]
            given.append(f"--since {self.since}")
        if rows and not kept:
            raise ConfigError(f"No entry has all of {', '.join(given)}; leave one out.")
        return kept


def matching(rows: Sequence[Row], key: str, name: str, hint: str = "") -> list[Row]:
    """Return the rows that have a name (of an objective also its setting or an id; of metrics also a pattern).

    Raises UnknownNameError with the nearest names where none has it.
    """
    matches, known = [], set()
    for row in rows:
        names = names_of(row, key)
        is_meant = name in names
        if key == "objective":
            is_meant = is_row(name, row.id, row.objective, row.label)
        elif key == "metric":
            is_meant = any(wanted(metric, [name]) for metric in names)
            if "/" not in name:
                names = [metric.split("/", 1)[1] for metric in names]
        if is_meant:
            matches.append(row)
        known.update(map(clean, names))
    if not matches:
        near = difflib.get_close_matches(name, sorted(known), n=NEAREST, cutoff=0)
        if (key, name) == ("kind", "published"):
            hint = "The papers' own numbers are on a board of their own: --leaderboard published:."
        elif len(known) > NEAREST:
            hint = f"These are the nearest of {len(known)}."
        raise UnknownNameError(f"entry of the {key}", name, near, hint=hint)
    return matches


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


def created_at(of: Row | Provenance) -> datetime:
    """Return the time at which an entry was recorded; a date without a zone is in UTC."""
    created = datetime.fromisoformat(of.created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)


def select(text: str, root: Path) -> list[Entry]:
    """Return the entries, one or more, that `text` names on the board at `root`, or on the one that it begins with.

    An id names an entry even if it is superseded; a query leaves out rows of older code. Raises DataError
    for a board without a folder, ConfigError for an empty one and UnknownNameError for a name that none has.
    """
    published = text.startswith(PUBLISHED)
    folder, name = split_reference(text, root)
    board = Leaderboard(folder)
    board.require_folder()
    if re.fullmatch(r"[0-9a-fA-F]{4,12}", name):
        rows = [row for row in board.rows(superseded=True) if row.id.startswith(name.lower())]
        if len(rows) > 1:
            ids = [row.id for row in rows]
            raise ConfigError(f"{text} begins {len(rows)} ids ({', '.join(ids)}); give more digits.")
        if rows:
            return [board.read(rows[0])]
    rows = board.rows()
    if not rows:
        raise ConfigError(board.without_entries())
    terms = []
    if published and "=" not in name:
        terms += zip(("suite", "model", "objective"), name.split("/", 2), strict=False)
    elif name != ANY:
        for term in re.split(r",(?![^(]*\))", name):  # commas outside brackets
            key, equals, value = term.partition("=")
            terms.append((key.strip(), value.strip()) if equals and "(" not in key else ("objective", term.strip()))
    try:
        for key, value in terms:
            if key not in KEYS:
                raise UnknownNameError("key of a query", key, KEYS, where=f"{name}: ", hint=FORMS)
            rows = matching(rows, key, value, hint=FORMS)
    except UnknownNameError as error:
        if not board.problems:
            raise
        raise ConfigError(
            f"{error} Files of the board cannot be read, see `emobench leaderboard verify`: {board.problems[0]}"
        ) from None
    entries = list(map(board.read, rows))
    older = frozenset().union(*map(older_code, groups(entries)))
    return [entry for entry in entries if entry.id not in older]


@dataclass(frozen=True, kw_only=True)
class Page:
    """`left_out` counts the rows that are not among the `entries`, and `cut` those of them that are of their group.

    `older` counts the groups that are not shown.
    """

    entries: tuple[Entry, ...]
    left_out: int
    cut: int
    older: int
    problems: tuple[str, ...]

    @property
    def more(self) -> str:
        """A sentence on the rows that are not shown; empty if all are."""
        sentences = []
        if self.cut:
            rows = f"Rows of this table that are not shown, and not part of its marks and ranks: {self.cut:,}."
            sentences.append(f"{rows} Give --rows N.")
        how = "narrow with --model, --objective, --suite or --since, or give --all and --rows N"
        sentences.append(older_groups(self.older, how))
        return " ".join(filter(None, sentences))


def read_page(
    board: Leaderboard, rows: Sequence[Row], limit: int, around: Collection[str] = (), *, older: bool = False
) -> Page:
    """Read the newest group of rows that may be compared; with `older`, the others too, until `limit` rows are reached.

    A group is read whole, with the `pretrained` rows that belong to it; only where the first one alone is larger than
    `limit`, its `pretrained` and its newest rows are. With `around`, only the groups that hold one of
    these ids are read, and these ids before other rows of a group that is too large. An entry that cannot be read is
    skipped, and named in `problems`.
    """
    problems = []

    @functools.cache
    def read(row: Row) -> Entry | None:
        try:
            return board.read(row)
        except EmobenchError as error:
            problems.append(str(error))
            return None

    def joins(untrained: Row, group: Sequence[Row]) -> bool:
        one, other = read(untrained), next(filter(None, map(read, group)), None)
        return one is not None and other is not None and not differences(one, other)

    shown = {}
    cut = hidden = 0
    for group in _groups(rows, joins, around):
        fresh = [row for row in group if row.id not in shown]
        full = len(shown) + len(fresh) > limit or not (older or around)
        if shown and (full or hidden):
            hidden += not around
            continue
        fresh.sort(key=lambda row: not row.untrained)
        cut = max(len(fresh) - limit, 0)
        for row in fresh[:limit]:
            shown[row.id] = row
    entries = tuple(filter(None, map(read, shown.values())))
    left = cut if around else len(rows) - len(shown)
    return Page(entries=entries, left_out=left, cut=cut, older=hidden, problems=tuple(problems))


def _groups(
    rows: Sequence[Row], joins: Callable[[Row, Sequence[Row]], bool], around: Collection[str]
) -> list[list[Row]]:
    """Return the comparable groups, the newest first, each with the `pretrained` rows that belong to it."""
    trained = {}
    untrained = {}
    for row in sorted(rows, key=lambda row: (row.id in around, row.created, row.id), reverse=True):
        if row.untrained:
            untrained.setdefault(_place(row), []).append(row)
        else:
            trained.setdefault(row.comparison_key, []).append(row)
    dated, alone = [], {row.id: row for row in rows if row.untrained}
    for group in trained.values():
        created = max(row.created for row in group)
        joining = [row for row in untrained.get(_place(group[0]), ()) if joins(row, group)]
        dated.append((created, [*group, *joining]))
        for row in joining:
            alone.pop(row.id, None)
    dated += [(row.created, [row]) for row in alone.values()]
    groups = []
    for _, group in sorted(dated, key=lambda one: one[0], reverse=True):
        if not around or any(row.id in around for row in group):
            groups.append(group)
    return groups


def _place(row: Row) -> tuple[str, int, str]:
    return row.suite, row.suite_version, row.model
