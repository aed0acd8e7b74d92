"""Rows of one objective and one setting whose code differs: the newest code is compared, older code is only shown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from emobench.leaderboard.schema.entry import Entry


def older_code(group: Sequence[Entry], own: Collection[str] = ()) -> frozenset[str]:
    """Return the ids of the rows of a comparable group that stand there with older code than a twin's.

    Twins have one objective name and the same parameters. Their code is the objective's version and source digest;
    a row that recorded no digest is nobody's twin. Of twins with more than one code, that of the newest row counts,
    or of the newest among `own` (the ids of the run that is being shown: what was just run is never "older").
    Older code is shown, and neither gets nor prevents a star or a place; nor can it be a baseline.
    """
    twins: dict[str, list[Entry]] = {}
    for entry in group:
        if entry.objective.source_sha256:
            twins.setdefault(entry.objective.label, []).append(entry)
    found: set[str] = set()
    for rows in twins.values():
        newest = max(rows, key=lambda e: (e.id in own, e.provenance.created, e.id))
        found |= {entry.id for entry in rows if _code(entry) != _code(newest)}
    return frozenset(found)


def _code(entry: Entry) -> tuple[str, str | None]:
    return entry.objective.version, entry.objective.source_sha256
