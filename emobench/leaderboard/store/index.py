"""The rows of a board, light facts of its entries, and an SQLite index, so that listing 10,000 entries reads no files.

`<root>/.index.sqlite` holds each file's size, time of change and inode when it was read, with its row, or the sentence
that says why it holds no entry, behind a checksum. `Leaderboard.rows` writes it.

It is a cache and never the truth: a file whose size, time or inode is another one is read again, and whoever needs an
entry's content reads and verifies its file. A damaged index is replaced; one that cannot be read or written is ignored.
It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import UserError
from emobench.core.settings import PRETRAINED, build
from emobench.leaderboard.schema.comparable import comparison_key
from emobench.leaderboard.schema.entry import (
    SCHEMA_VERSION,
    Entry,
    Model,
    Provenance,
    Run,
    SuiteVersion,
    TrainedObjective,
)

INDEX = ".index.sqlite"
VERSION = 8000 + SCHEMA_VERSION
"""The first digit grows with any change of this file, of a row, and of what is refused as an entry."""
WORTH = 100
"""Files that were read anew, or are gone, before the index is written: reading fewer costs nothing."""
PATIENCE = 2.0
"""Seconds to wait for another process that writes the index; after that, this one does without."""

_TABLE = """CREATE TABLE IF NOT EXISTS files (
    file TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, facts TEXT, checksum INTEGER
) WITHOUT ROWID"""

NO_ROW = (UserError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What unchecked data raises where it holds no row."""


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
    seeds: tuple[int, ...] = ()
    revision: str = ""
    """Of the model, or its source where it has none."""
    objective_version: str = ""

    @property
    def untrained(self) -> bool:
        return self.objective == PRETRAINED

    def facts(self) -> list[Any]:
        """Return all fields but the path, as plain data for the index."""
        return [self.id, *self[2:]]


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
        seeds=tuple(entry.seeds),
        revision=entry.model.revision or entry.model.source,
        objective_version=entry.objective.version,
    )


def row_of_plain(plain: Mapping[str, Any], root: Path, file: str) -> Row:
    """Return the row of plain data of the current schema in "folder/name" of a board; only a row's facts are checked.

    Raises one of `NO_ROW` where the data hold none.
    """
    entry = object.__new__(Entry)  # without the checks of all the rest, which take as long as reading
    parts = {
        "suite": SuiteVersion(**plain["suite"]),
        "model": build(Model, plain["model"], file),
        "objective": TrainedObjective(**plain["objective"]),
        "provenance": Provenance(**plain["provenance"]),
        "runs": [Run(seed=None, key=run["key"]) for run in plain["runs"]],
    }
    entry.__dict__.update({**plain, **parts})
    return row_of_facts(root, file, row_of(entry, root).facts())


def row_of_facts(root: Path, file: str, facts: Any) -> Row:
    """Return a row; raises one of `NO_ROW` where its facts have other types or another file's name."""
    identity, kind, suite, version, model, objective, label, created, key, metrics, supersedes, runs, *more = facts
    seeds, revision, objective_version = more
    texts = (identity, kind, suite, model, objective, label, key, revision, objective_version, *runs)
    right = {*map(type, texts)} == {str} and type(version) is int and type(supersedes) in (str, type(None))
    right = right and {*map(type, seeds)} <= {int} and {type(runs), type(seeds)} <= {list, tuple}
    if not right or file != f"{suite}-v{version}/{identity}.json":
        raise ValueError
    datetime.fromisoformat(created)
    path, names = Path(f"{root}/{file}"), _metric_names(tuple(metrics))
    named = (identity, path, kind, suite, version, model, objective, label, created, key)
    return Row(*named, names, supersedes, tuple(runs), tuple(seeds), revision, objective_version)


@functools.cache
def _metric_names(metrics: tuple[Any, ...]) -> tuple[str, ...]:
    """Check and return metrics' names, which thousands of entries share; raises one of `NO_ROW`."""
    if not all(task and name for task, _, name in (metric.partition("/") for metric in metrics)):
        raise ValueError
    return metrics


class Index:
    """File -> its row, or the sentence that says why it holds no entry; as it was when it was last read."""

    def __init__(self, root: Path) -> None:
        self._root, self._path = root, root / INDEX
        self._held: dict[str, tuple[Any, ...]] = {}
        self._damaged = False
        # A link in a board from elsewhere may lead to any database, and reading a pipe would never end.
        self._usable = not self._path.is_symlink() and (self._path.is_file() or not self._path.exists())
        if self._usable and self._path.exists():
            self._load()
        self._gone = set(self._held)
        self._fresh: dict[str, tuple[Any, ...]] = {}

    def get(self, file: str, status: os.stat_result) -> Row | str | None:
        """Return what is known of a file (as "folder/name"), or None where it has to be read."""
        self._gone.discard(file)
        *state, text, checksum = self._held.get(file, (None, "", 0))
        if state != _state(status) or checksum != _checksum(file, state, text):
            return None
        try:
            facts = json.loads(text)
            return facts if isinstance(facts, str) else row_of_facts(self._root, file, facts)
        except NO_ROW:
            return None

    def put(self, file: str, status: os.stat_result, found: Row | str) -> None:
        """Add what was just read."""
        state, text = _state(status), json.dumps(found if isinstance(found, str) else found.facts())
        self._fresh[file] = (*state, text, _checksum(file, state, text))

    def save(self) -> None:
        """Write what was added, and drop the files that are gone, where that is worth it."""
        if self._usable and len(self._fresh) + len(self._gone) >= WORTH:
            with contextlib.suppress(sqlite3.Error, OSError):  # a cache that another process or a full disk blocks
                if self._damaged:
                    remove_index(self._root)
                self._write()

    def _load(self) -> None:
        try:
            with contextlib.closing(self._connect("ro")) as database:
                self._damaged = database.execute("PRAGMA user_version").fetchone() != (VERSION,)
                if not self._damaged:
                    found = database.execute("SELECT file, size, mtime_ns, inode, facts, checksum FROM files")
                    self._held = {file: tuple(known) for file, *known in found}
        except sqlite3.DatabaseError as error:  # an operational error is of the moment, such as a lock
            self._damaged = not isinstance(error, sqlite3.OperationalError)

    def _write(self) -> None:
        with contextlib.closing(self._connect("rwc")) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(f"PRAGMA user_version = {VERSION}")
            database.execute(_TABLE)
            database.executemany("DELETE FROM files WHERE file = ?", [(file,) for file in self._gone])
            rows = [(file, *known) for file, known in self._fresh.items()]
            database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.execute("COMMIT")

    def _connect(self, mode: str) -> sqlite3.Connection:
        uri = f"{self._path.absolute().as_uri()}?mode={mode}"
        database = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
        database.text_factory = lambda data: data.decode(errors="replace")  # damaged bytes fit no checksum
        database.execute("PRAGMA trusted_schema = OFF")  # a stranger's schema may call no functions
        return database


def remove_index(root: Path) -> None:
    """Delete a board's index, such as of one that is packed and shared."""
    for name in (INDEX, f"{INDEX}-journal"):
        (root / name).unlink(missing_ok=True)


def _state(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _checksum(file: str, state: Sequence[Any], text: str) -> int:
    return zlib.crc32(f"{file} {state} {text}".encode(errors="replace"))
