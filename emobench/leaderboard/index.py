"""What is remembered of a board's files, so that listing 10,000 entries does not read 10,000 files.

`<root>/.index.json` is a cache and never the truth: a file whose size or time of change is another one is read again,
and whoever needs an entry's content reads and verifies its file. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from emobench.config import PRETRAINED
from emobench.errors import StorageError
from emobench.leaderboard.comparison import comparison_key
from emobench.leaderboard.entry import SCHEMA_VERSION, Entry
from emobench.leaderboard.files import write_whole

INDEX = ".index.json"
VERSION = [1, SCHEMA_VERSION]
"""The first number grows with any change of this file, and of what is refused as an entry."""
WORTH = 100
"""Files that were read anew before the index is written: fewer are read faster than it is synced."""
SETTLED_NS = 2_000_000_000
"""A file that changed in this time before it was read might change again without another time of change."""


class Row(NamedTuple):
    """Light facts of an entry; its numbers are in its file (`Leaderboard.read`)."""

    id: str
    path: Path
    kind: str
    suite: str
    suite_version: int
    model: str
    objective: str
    """The objective's name, such as `tailr`."""
    label: str
    """The objective with its parameters, as `--objective` takes it: `tailr(gamma=0.2)`."""
    created: str
    comparison_key: str
    """Trained entries with the same one are ranked together."""
    metrics: tuple[str, ...]
    """<task>/<metric> of all that was measured, without what is missing."""
    supersedes: str | None
    runs: tuple[str, ...]
    """The runs' keys."""

    @property
    def untrained(self) -> bool:
        return self.objective == PRETRAINED


def row_of(entry: Entry, path: Path) -> Row:
    """Return the row of an entry that was read from `path`."""
    return Row(
        id=entry.id,
        path=path,
        kind=entry.kind,
        suite=entry.suite.name,
        suite_version=entry.suite.version,
        model=entry.model.name,
        objective=entry.objective.name,
        label=entry.objective.label,
        created=entry.provenance.created,
        comparison_key=comparison_key(entry),
        metrics=tuple(entry.metrics),
        supersedes=entry.supersedes,
        runs=tuple(run.key for run in entry.runs),
    )


class Index:
    """File -> its row, or the sentence that says why it holds no entry; as it was at a size and time of change."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, Any] = {}
        self._metrics: list[tuple[str, ...]] = []
        self._kept: dict[str, tuple[int, int, Row | str]] = {}
        self._fresh = 0
        path = root / INDEX
        with contextlib.suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
            held: Any = json.loads(path.read_bytes() if path.is_file() else "{}")  # a pipe would be waited for
            if held["version"] == VERSION and isinstance(held["files"], dict):
                self._metrics = [tuple(map(str, names)) for names in held["metrics"]]
                self._held = held["files"]

    def get(self, file: str, status: os.stat_result) -> Row | str | None:
        """Return what is known of a file (as "folder/name"), or None where that has to be read."""
        try:
            size, changed, known = self._held[file]
            if (size, changed) != (status.st_size, status.st_mtime_ns):
                return None
            found = known if type(known) is str else self._row(file, known)
        except (TypeError, ValueError, LookupError):  # not there, or a corrupt index
            return None
        self._kept[file] = size, changed, found
        return found

    def put(self, file: str, status: os.stat_result, found: Row | str) -> None:
        """Remember what was just read."""
        self._fresh += 1
        if time.time_ns() - status.st_mtime_ns > SETTLED_NS:
            self._kept[file] = status.st_size, status.st_mtime_ns, found

    def save(self) -> None:
        """Write the index where that is worth it; a folder that cannot be written stays without one."""
        if self._fresh < WORTH:
            return
        numbers: dict[tuple[str, ...], int] = {}
        files = {
            file: (size, changed, known if isinstance(known, str) else _plain(known, numbers))
            for file, (size, changed, known) in self._kept.items()
        }
        held = {"version": VERSION, "metrics": list(numbers), "files": files}
        with contextlib.suppress(StorageError):
            write_whole(self._root / INDEX, json.dumps(held, separators=(",", ":")), "The index", "")

    def _row(self, file: str, known: list[Any]) -> Row:
        """Return a row; raises an error where its facts have other types or another file's name."""
        identity, kind, suite, version, model, objective, label, created, key, metrics, supersedes, runs = known
        texts = (identity, kind, suite, model, objective, label, created, key, *runs)
        right = {*map(type, texts)} == {str} and type(version) is int and type(supersedes) in (str, type(None))
        if not right or type(runs) is not list or file != f"{suite}-v{version}/{identity}.json":
            raise ValueError
        names = self._metrics[metrics]
        path = Path(f"{self._root}/{file}")
        return Row(
            identity, path, kind, suite, version, model, objective, label, created, key, names, supersedes, tuple(runs)
        )


def _plain(row: Row, numbers: dict[tuple[str, ...], int]) -> list[Any]:
    """Return a row without its path, and with a number for its metrics' names, which thousands have alike."""
    return [row.id, *row[2:_METRICS], numbers.setdefault(row.metrics, len(numbers)), *row[_METRICS + 1 :]]


_METRICS = Row._fields.index("metrics")
