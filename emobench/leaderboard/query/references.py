"""What a reader names on a board, as entries: an id, an address of the papers' board, an objective or a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.leaderboard.comparable import groups, older_code
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.filters import NAMES, matching
from emobench.leaderboard.store import Leaderboard, Row, published_root

PUBLISHED = "published:"
FORMS = (
    "an entry's id or its first 4 digits or more, an objective (emo), a query (model=gpt2,objective=emo) or a paper's "
    "row (published:emo-table3/llama-7b/emo)"
)


def select(text: str, root: Path) -> list[Entry]:
    """Return the entries that `text` names on the board at `root` (or on the papers', after "published:"), one or more.

    An id names an entry even if it is superseded; a query leaves out rows of older code. Raises DataError
    for a board without a folder, ConfigError for an empty one and UnknownNameError for a name that none has.
    """
    published = text.startswith(PUBLISHED)
    board = Leaderboard(published_root() if published else root)
    wanted = text.removeprefix(PUBLISHED)
    board.require_folder()
    if published and "=" not in wanted:
        return [board.read(row) for row in _addressed(wanted, board.rows())]
    if re.fullmatch(r"[0-9a-fA-F]{4,12}", wanted):
        found = [row for row in board.rows(superseded=True) if row.id.startswith(wanted.lower())]
        if len(found) > 1:
            ids = ", ".join(row.id for row in found)
            raise ConfigError(f"{text} begins {len(found)} ids ({ids}); give more digits.")
        if found:
            return [board.read(found[0])]
    rows = board.rows()
    if not rows:
        raise ConfigError(board.without_entries())
    try:
        entries = [board.read(row) for row in _queried(wanted, rows)]
    except UnknownNameError as error:
        if not board.problems:
            raise
        raise ConfigError(
            f"{error} Files of the board cannot be read, see `emobench leaderboard verify`: {board.problems[0]}"
        ) from None
    older = {key for group in groups(entries) for key in older_code(group)}
    return [entry for entry in entries if entry.id not in older]


def _addressed(address: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of <suite>[/<model>[/<objective>]]."""
    found = list(rows)
    fields = (("table", lambda r: r.suite), ("model", lambda r: r.model), ("objective", lambda r: r.label))
    for (name, field), part in zip(fields, address.split("/", 2), strict=False):
        known = {field(row) for row in found}
        if part not in known:
            raise UnknownNameError(f"published {name}", part, known, where=f"{PUBLISHED}{address}: ")
        found = [row for row in found if field(row) == part]
    return found


def _queried(text: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that satisfy every term, `key=value` or an objective, separated by commas outside brackets."""
    found = list(rows)
    for term in re.split(r",(?![^(]*\))", text):
        key, equals, value = term.partition("=")
        if not equals or "(" in key:
            key, value = "objective", term
        if key.strip() not in NAMES:
            raise UnknownNameError("key of a query", key.strip(), NAMES, where=f"{text}: ", hint=f"Give {FORMS}.")
        found = matching(found, key.strip(), value.strip(), hint=f"Give {FORMS}.")
    return found
