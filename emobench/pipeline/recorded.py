"""From what a reader names on a board to an entry, and from an entry to its stages on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from emobench.errors import DataError
from emobench.leaderboard.entry import Entry, File, Run
from emobench.leaderboard.examples import recorded_file
from emobench.leaderboard.select import select
from emobench.pipeline.stages import FACTS


class Named(NamedTuple):
    """The newest entry that a name means, and the older ones, newest first."""

    entry: Entry
    older: list[Entry]


def newest_of(names: Sequence[str], board: Path, wanted: Callable[[Entry], bool] = lambda entry: True) -> list[Named]:
    """Return the newest entry that each name means (`leaderboard.select.select`), of those that are wanted if any is.

    An entry that several names mean is there once. Raises what `select` raises.
    """
    found: dict[str, Named] = {}
    for name in names:
        entries = select(name, board)
        first, *older = newest_first([entry for entry in entries if wanted(entry)] or entries)
        found.setdefault(first.id, Named(first, older))
    return list(found.values())


def newest_first(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=_created, reverse=True)


def older_line(older: Sequence[Entry], shown: int = 3) -> str:
    """Say which older entries a name means, too."""
    count = len(older)
    ids = ", ".join(entry.id[:6] for entry in older[:shown])
    match = "1 older entry matches" if count == 1 else f"{count} older entries match"
    return f"{match} ({ids}{', ...' if count > shown else ''}); name one by its id."


def score_stages(entry: Entry, run: Run, runs: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield what determined each score stage of a run, and its folder. Raises DataError where its files are gone."""
    for key in read_json(runs / "examples" / run.key / FACTS, entry)["scores"]:
        folder = runs / "score" / key
        yield read_json(folder / FACTS, entry), folder


def sample_files(entry: Entry, run: Run, runs: Path) -> Iterator[tuple[dict[str, Any], File]]:
    """Yield what determined each generation of a run, and the file of its samples (`recorded_file` checks it)."""
    for file in run.samples:
        place = runs / file.path
        if not place.is_file():
            recorded_file(file, runs, entry)  # says that it is gone
        yield read_json(place.parent / FACTS, entry), file


def read_json(path: Path, entry: Entry) -> Any:
    """Read a file of an entry's stages; raises DataError where that is not possible."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(
            f"{path}: cannot be read, and the entry {entry.id} was recorded from it. Give the folder of its runs with "
            "--runs DIR, or run again."
        ) from None


def _created(entry: Entry) -> datetime:
    created = datetime.fromisoformat(entry.provenance.created)
    return created if created.tzinfo else created.replace(tzinfo=UTC)
