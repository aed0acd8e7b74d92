"""An SQLite index of a board's files, so that listing 10,000 entries does not read 10,000 files.

`<root>/.index.sqlite` holds each file's size, time of change and inode when it was read, with its row, or the sentence
that says why it holds no entry, behind a checksum.

It is a cache and never the truth: a file whose size, time or inode is another one is read again, and whoever needs an
entry's content reads and verifies its file. A damaged index is replaced; one that cannot be read or written, or belongs
to another user, is ignored. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from emobench.leaderboard.schema.entry import SCHEMA_VERSION
from emobench.leaderboard.store.row import NO_ROW, Row, row_of_facts

INDEX = ".index.sqlite"
VERSION = 4000 + SCHEMA_VERSION
"""The first digit grows with any change of this file, of a row, and of what is refused as an entry."""
WORTH = 100
"""Files that were read anew, or are gone, before the index is written: reading fewer costs nothing."""
SETTLED_NS = 2_000_000_000
"""A file that changed in this time before it was read might change again without another time of change."""
PATIENCE = 2.0
"""Seconds to wait for another process that writes the index; after that, this one does without."""

_TABLE = """CREATE TABLE IF NOT EXISTS files (
    file TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, inode INTEGER, facts TEXT, checksum INTEGER
) WITHOUT ROWID"""
_DAMAGE = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
"""What SQLite reports of a file that is no database, or has another table; other errors are of the moment."""


class Record(NamedTuple):
    """A row of the table. `facts` is JSON: a list, or a sentence."""

    file: str
    size: int
    mtime_ns: int
    inode: int
    facts: str
    checksum: int

    @classmethod
    def of(cls, file: str, status: os.stat_result, facts: Any) -> Record:
        state = (file, status.st_size, status.st_mtime_ns, status.st_ino, json.dumps(facts))
        return cls(*state, _checksum(*state))


class Index:
    """File -> its row, or the sentence that says why it holds no entry; as it was when it was last read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held = {record[0]: record for record in _load(root)}
        self._gone = set(self._held)
        self._fresh: list[Record] = []

    def get(self, file: str, status: os.stat_result) -> Row | str | None:
        """Return what is known of a file (as "folder/name"), or None where it has to be read."""
        self._gone.discard(file)
        record = self._held.get(file)
        if record is None or record[1:4] != (status.st_size, status.st_mtime_ns, status.st_ino):
            return None
        try:
            if _checksum(*record[:5]) != record[5]:
                return None
            facts = json.loads(record[4])
            return facts if isinstance(facts, str) else row_of_facts(self._root, file, facts)
        except NO_ROW:
            return None

    def put(self, file: str, status: os.stat_result, found: Row | str) -> None:
        """Add what was just read."""
        if time.time_ns() - status.st_mtime_ns > SETTLED_NS:
            self._fresh.append(Record.of(file, status, found if isinstance(found, str) else found.facts()))

    def save(self) -> None:
        """Write what was added, and drop the files that are gone, where that is worth it."""
        if len(self._fresh) + len(self._gone) >= WORTH:
            _write(self._root / INDEX, self._fresh, self._gone)


def remember(root: Path, row: Row) -> None:
    """Add an entry that was just written to a board's index.

    It counts at once, unlike what was read: nobody rewrites an entry's file, least of all in the tick in which it came.
    """
    with contextlib.suppress(OSError):
        record = Record.of(f"{row.path.parent.name}/{row.path.name}", row.path.stat(), row.facts())
        _write(root / INDEX, [record], ())


def remove_index(root: Path) -> None:
    """Delete a board's index, such as of one that is packed and shared."""
    for name in (INDEX, f"{INDEX}-journal"):
        (root / name).unlink(missing_ok=True)


def _load(root: Path) -> list[tuple[Any, ...]]:
    """Return the records of a board's index, unchecked; none where it is missing, damaged or of another version."""
    path = root / INDEX
    if not _is_ours(path) or not path.exists():
        return []
    with contextlib.suppress(sqlite3.Error), contextlib.closing(_connect(path, "ro")) as database:
        if database.execute("PRAGMA user_version").fetchone() == (VERSION,):
            return database.execute("SELECT file, size, mtime_ns, inode, facts, checksum FROM files").fetchall()
    return []


def _write(path: Path, fresh: Iterable[Record], gone: Iterable[str]) -> None:
    """Add and remove records; replace an index that is damaged, and do without one that cannot be written."""
    if not _is_ours(path):
        return
    with contextlib.suppress(sqlite3.Error, OSError):
        try:
            _update(path, fresh, gone)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _DAMAGE:
                raise
            remove_index(path.parent)
            _update(path, fresh, ())


def _update(path: Path, fresh: Iterable[Record], gone: Iterable[str]) -> None:
    with contextlib.closing(_connect(path, "rwc")) as database:
        database.execute("PRAGMA synchronous = OFF")  # after a power cut the checksums tell what is whole
        database.execute("BEGIN IMMEDIATE")
        if database.execute("PRAGMA user_version").fetchone() != (VERSION,):
            database.execute("DROP TABLE IF EXISTS files")
            database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute(_TABLE)
        database.executemany("DELETE FROM files WHERE file = ?", [(file,) for file in gone])
        database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", fresh)
        database.execute("COMMIT")


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    # Damaged bytes are text that no checksum fits, not an error; a stranger's schema may call no functions.
    database.text_factory = lambda data: data.decode(errors="replace")
    database.execute("PRAGMA trusted_schema = OFF")
    return database


def _is_ours(path: Path) -> bool:
    """Return whether a path is absent, or a regular file of this user: a board may come from anywhere."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def _checksum(file: Any, size: Any, mtime_ns: Any, inode: Any, facts: Any) -> int:
    return zlib.crc32(f"{file}\0{size}\0{mtime_ns}\0{inode}\0{facts}".encode(errors="replace"))
