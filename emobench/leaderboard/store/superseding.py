"""Which entries replace which. What an entry says of itself is not enough: it may be a stranger's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from emobench.leaderboard.store.index import Row

_SAME = ("kind", "suite", "suite_version", "objective_version", "label", "revision")
"""Facts that a row and the one that it supersedes have alike; so is the name of a model without a revision."""


def superseded_by(rows: Iterable[Row]) -> dict[str, str]:
    """Return the id of each superseded row -> the id of the row that supersedes it."""
    return {old.id: new.id for new, old, why in _claims(list(rows)) if not why}


def ignored_claims(rows: Iterable[Row]) -> Iterator[tuple[Row, Row, str]]:
    """Yield the rows that may not supersede what they name, with that row, and the reason in words."""
    return (claim for claim in _claims(list(rows)) if claim[2])


def _claims(rows: list[Row]) -> Iterator[tuple[Row, Row, str]]:
    by_id = {row.id: row for row in rows}
    for new in rows:
        if new.supersedes in by_id:
            old = by_id[new.supersedes]
            yield new, old, _why_not(new, old)


def _why_not(new: Row, old: Row) -> str:
    """Return why a row may not supersede another one; "" if it may.

    It has the same objective, model and suite, and at least the runs and seeds of the other. An import that was renamed
    is of the same files, whose digests are the keys of its runs.
    """
    renamed = new.kind == old.kind == "imported" and new.runs and sorted(new.runs) == sorted(old.runs)
    same = _SAME if new.revision else (*_SAME, "model")
    for name in () if renamed else same:
        mine, others = getattr(new, name), getattr(old, name)
        if mine != others:
            return f"its {name.replace('_', ' ')} is {mine}, and the other's is {others}"
    if not renamed and not set(old.seeds) <= set(new.seeds):
        return f"it has the seeds {list(new.seeds)}, and the other has {list(old.seeds)}"
    if bool(new.runs) != bool(old.runs) or not set(old.runs) <= set(new.runs):
        return "it is of other runs"
    return ""


def contained(rows: Iterable[Row]) -> set[str]:
    """Return the ids of rows all of whose runs are among the more runs of another one, of the same conditions."""
    runs_of = {row.id: frozenset(row.runs) for row in rows}
    holders: dict[tuple[str, str, str], set[frozenset[str]]] = {}
    for row in rows:
        for key in runs_of[row.id]:
            holders.setdefault((row.comparison_key, row.label, key), set()).add(runs_of[row.id])
    found = set()
    for row in rows:
        if row.runs:
            others = holders[row.comparison_key, row.label, row.runs[0]]
            if any(runs_of[row.id] < other for other in others):
                found.add(row.id)
    return found
