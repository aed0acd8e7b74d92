"""Which entries replace which. What an entry says of itself is not enough: it may be a stranger's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from emobench.leaderboard.schema.entry import Entry
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


def containing(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the id of each row all of whose runs are among the more runs of others of its conditions -> those rows."""
    holders: dict[tuple[str, str, str], list[Row]] = {}
    for row in rows:
        for key in set(row.runs):
            holders.setdefault((row.comparison_key, row.label, key), []).append(row)
    found = {}
    for row in rows:
        if row.runs:
            near = holders[row.comparison_key, row.label, row.runs[0]]
            if larger := [other for other in near if set(row.runs) < set(other.runs)]:
                found[row.id] = larger
    return found


def holds(more: Entry, fewer: Entry) -> bool:
    """Return whether an entry of more runs has all numbers of one of fewer: a run's key is public, and may be claimed.

    It has the same value of each seed of each metric, but for rounding.
    """
    for name, metric in fewer.metrics.items():
        if name not in more.metrics:
            return False
        theirs = dict(zip(more.seeds, more.metrics[name].values, strict=False))
        for seed, value in zip(fewer.seeds, metric.values, strict=False):
            if seed not in theirs or not math.isclose(theirs[seed], value, rel_tol=1e-6):
                return False
    return True
