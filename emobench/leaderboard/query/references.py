"""What a reader names on a board, as entries: an id, an address of the papers' board, an objective or a query."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from emobench.errors import ConfigError, UnknownNameError
from emobench.leaderboard.schema.comparable import groups, older_code
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.labels import is_meant
from emobench.leaderboard.store.board import Leaderboard, published_root
from emobench.leaderboard.store.row import Row

PUBLISHED = "published:"
FORMS = (
    "an entry's id or its first 4 digits or more, an objective (emo), a query (model=gpt2,objective=emo) or a paper's "
    "row (published:emo-table3/llama-7b/emo)"
)

_KEYS: dict[str, Callable[[Row, str], bool]] = {
    "model": lambda row, text: row.model == text,
    "objective": lambda row, text: is_meant(text, row.objective, row.label),
    "suite": lambda row, text: text in (row.suite, f"{row.suite}@{row.suite_version}"),
    "kind": lambda row, text: row.kind == text,
}


def select(text: str, root: Path) -> list[Entry]:
    """Return the entries that `text` names on the board at `root` (or on the papers', after "published:"), one or more.

    An id names an entry even if it is superseded; a query leaves out rows of older code. Raises DataError
    for a board without a folder, ConfigError for an empty one and UnknownNameError for a name that none has.
    """
    published = text.startswith(PUBLISHED)
    board = Leaderboard(published_root() if published else root)
    wanted = text.removeprefix(PUBLISHED) if published else text
    board.require_folder()
    if published and "=" not in wanted:
        return _read(board, _addressed(wanted, board.rows()))
    if re.fullmatch(r"[0-9a-fA-F]{4,12}", wanted):
        found = [row for row in board.rows(superseded=True) if row.id.startswith(wanted.lower())]
        if len(found) > 1:
            ids = ", ".join(row.id for row in found)
            raise ConfigError(f"{text} begins {len(found)} ids ({ids}); give more digits.")
        if found:
            return _read(board, found)
    rows = board.rows()
    try:
        entries = _read(board, _queried(wanted, rows))
    except UnknownNameError as error:
        if not board.problems:
            raise
        more = f" And {len(board.problems) - 1} more." if len(board.problems) > 1 else ""
        raise ConfigError(
            f"{error} Files of the board cannot be read, see `emobench leaderboard verify`: {board.problems[0]}{more}"
        ) from None
    older = {key for group in groups(entries) for key in older_code(group)}
    return [entry for entry in entries if entry.id not in older]


def _addressed(address: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of <suite>[/<model>[/<objective>]]."""
    found = list(rows)
    fields = (("table", lambda r: r.suite), ("model", lambda r: r.model), ("objective", lambda r: r.label))
    parts = address.split("/", 2)
    for (name, field), part in zip(fields, parts, strict=False):
        kept = [row for row in found if field(row) == part]
        if not kept:
            where = f"{PUBLISHED}{address}: "
            raise UnknownNameError(f"published {name}", part, {field(row) for row in found}, where=where)
        found = kept
    return found


def _queried(text: str, rows: Sequence[Row]) -> list[Row]:
    """Return the rows that satisfy every term, `key=value` or an objective, separated by commas outside brackets."""
    found = list(rows)
    if not found:
        raise ConfigError(f"{text} names nothing: the leaderboard has no entry yet. `emobench run` makes the first.")
    for term in re.split(r",(?![^(]*\))", text):
        key, equals, value = term.partition("=")
        if not equals or "(" in key:
            key, value = "objective", term
        key, value = key.strip(), value.strip()
        if key not in _KEYS:
            raise UnknownNameError("key of a query", key, _KEYS, where=f"{text}: ", hint=f"Give {FORMS}.")
        kept = [row for row in found if _KEYS[key](row, value)]
        if not kept:
            known = {_known(row, key, value) for row in found}
            raise UnknownNameError(f"entry with the {key}", value, known, hint=f"Give {FORMS}.")
        found = kept
    return found


def _known(row: Row, key: str, value: str) -> str:
    objective = row.label if "(" in value else row.objective
    return {"model": row.model, "objective": objective, "suite": row.suite, "kind": row.kind}[key]


def _read(board: Leaderboard, rows: Sequence[Row]) -> list[Entry]:
    return [board.read(row) for row in rows]
