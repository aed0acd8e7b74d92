"""What is remembered of a board's files, so that listing 10,000 entries does not read 10,000 files.

`<root>/.index.jsonl` has a line for each file that was appended or read: [version, file, size, time of change, found],
behind the checksum of this text.
Lines are only added, in a single write between line ends, so that many processes may add to it at once: a line that
is torn or foreign is skipped, and of several lines of one file the last counts.

It is a cache and never the truth: a file whose size or time of change is another one is read again, and whoever needs
an entry's content reads and verifies its file. It may be deleted at any time.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import time
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from emobench.config import PRETRAINED, build
from emobench.errors import StorageError, UserError
from emobench.files import write_whole
from emobench.leaderboard.schema.comparable import comparison_key
from emobench.leaderboard.schema.entry import SCHEMA_VERSION, Entry, Model, Objective, Provenance, Run, Suite

INDEX = ".index.jsonl"
VERSION = f"3.{SCHEMA_VERSION}"
"""The first number grows with any change of this file, and of what is refused as an entry."""
WORTH = 100
"""Files that were read anew before they are remembered, and stale lines that are always kept: so few cost nothing."""
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
    values: str
    """A digest of all values by run, and of what is missing: two of the same runs with the same one say the same."""

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
        values=_digest(entry),
    )


def _digest(entry: Entry) -> str:
    """Return the digest of what an entry says of its runs; its metrics may be plain data."""
    order = sorted(range(len(entry.runs)), key=lambda place: entry.runs[place].key)
    metrics = {name: _said(metric, order) for name, metric in sorted(entry.metrics.items())}
    code = (entry.objective.label, entry.objective.version, entry.objective.source_sha256)
    text = json.dumps([code, metrics, sorted(entry.missing)])
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _said(metric: Any, order: Sequence[int]) -> list[Any]:
    """Return a metric's values in the order of the runs' keys, and what is said of them."""
    found = metric if isinstance(metric, Mapping) else vars(metric)
    values = list(map(float, found["values"]))
    values = [values[place] for place in order] if len(values) == len(order) else values
    return [values, *(found.get(name) for name in ("mean", "std", "ci95"))]


def light_row(plain: Mapping[str, Any], root: Path, file: str) -> Row:
    """Return the row of plain data of the current schema in "folder/name" of a board; only a row's facts are checked.

    Raises one of `NO_ROW` where it is none.
    """
    entry = object.__new__(Entry)  # without the checks of all the rest, which take as long as reading
    parts = {
        "suite": Suite(**plain["suite"]),
        "model": build(Model, plain["model"], file),
        "objective": Objective(**plain["objective"]),
        "provenance": Provenance(**plain["provenance"]),
        "runs": [Run(seed=None, key=run["key"]) for run in plain["runs"]],
    }
    entry.__dict__.update({**plain, **parts})
    return _row(root, file, _facts(row_of(entry, root / file)))


NO_ROW = (UserError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What data that was not checked raises."""


def remember(root: Path, row: Row) -> None:
    """Add an entry that was just written to a board's index.

    It counts at once, unlike what was read: nobody rewrites an entry's file, least of all in the tick in which it came.
    """
    with contextlib.suppress(OSError):
        status = row.path.stat()
        file = f"{row.path.parent.name}/{row.path.name}"
        _add(root, [_line(file, status.st_size, status.st_mtime_ns, _facts(row))])


class Index:
    """File -> its row, or the sentence that says why it holds no entry; as it was at a size and time of change."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._held: dict[str, tuple[int, int, Any]] = {}
        self._lines = 0
        self._known: list[str] = []
        self._fresh: list[str] = []
        decode = json.JSONDecoder().decode
        for line in filter(None, _text(root / INDEX).split("\n")):
            self._lines += 1
            with contextlib.suppress(TypeError, ValueError, RecursionError):
                version, file, size, changed, found = decode(_checked(line))
                if version == VERSION:
                    self._held[file] = size, changed, found

    def get(self, file: str, status: os.stat_result) -> Row | str | None:
        """Return what is known of a file (as "folder/name"), or None where that has to be read."""
        size, changed, found = self._held.get(file, (None, None, None))
        if (size, changed) != (status.st_size, status.st_mtime_ns):
            return None
        try:
            known = found if isinstance(found, str) else _row(self._root, file, found)
        except NO_ROW:
            return None
        self._known.append(file)
        return known

    def put(self, file: str, status: os.stat_result, found: Row | str) -> None:
        """Take in what was just read."""
        if time.time_ns() - status.st_mtime_ns > SETTLED_NS:
            facts = found if isinstance(found, str) else _facts(found)
            self._fresh.append(_line(file, status.st_size, status.st_mtime_ns, facts))

    def save(self) -> None:
        """Keep what was taken in where that is worth it, and drop what is stale where that is much."""
        if self._lines > 2 * len(self._known) + WORTH:
            lines = [_line(file, *self._held[file]) for file in self._known] + self._fresh
            with contextlib.suppress(StorageError):
                write_whole(self._root / INDEX, _joined(lines), "The index", "")
        elif len(self._fresh) >= WORTH:
            _add(self._root, self._fresh)


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        if path.is_file():  # a pipe would be waited for
            return path.read_bytes().decode(errors="replace")
    return ""


def _add(root: Path, lines: list[str]) -> None:
    """Add lines to a board's index; one that cannot be written stays without them."""
    with contextlib.suppress(OSError):
        # Of a board that came from elsewhere, the index might be a link to any file.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(root / INDEX, flags, 0o666)
        try:
            os.write(descriptor, _joined(lines).encode())
        finally:
            os.close(descriptor)


def _joined(lines: list[str]) -> str:
    return "\n" + "\n".join(lines) + "\n"


def _line(file: str, size: int, changed: int, found: Any) -> str:
    text = json.dumps((VERSION, file, size, changed, found), separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x} {text}"


def _checked(line: str) -> str:
    """Return the text of a line; ValueError where it is not the text that was written."""
    checksum, _, text = line.partition(" ")
    if int(checksum, 16) != zlib.crc32(text.encode(errors="replace")):
        raise ValueError
    return text


def _facts(row: Row) -> list[Any]:
    """Return all of a row but its path."""
    return [row.id, *row[2:]]


def _row(root: Path, file: str, facts: Any) -> Row:
    """Return a row; raises one of `NO_ROW` where its facts have other types or another file's name."""
    identity, kind, suite, version, model, objective, label, created, key, metrics, supersedes, runs, values = facts
    texts = (identity, kind, suite, model, objective, label, key, values, *runs)
    right = {*map(type, texts)} == {str} and type(version) is int and type(supersedes) in (str, type(None))
    if not right or type(runs) not in (list, tuple) or file != f"{suite}-v{version}/{identity}.json":
        raise ValueError
    datetime.fromisoformat(created)
    path, names = Path(f"{root}/{file}"), _names(tuple(metrics))
    named = (identity, path, kind, suite, version, model, objective, label, created, key)
    return Row(*named, names, supersedes, tuple(runs), values)


@functools.cache
def _names(metrics: tuple[Any, ...]) -> tuple[str, ...]:
    """Return metrics' names, which thousands of entries have alike; raises one of `NO_ROW` for what are none."""
    if not all(task and name for task, _, name in (metric.partition("/") for metric in metrics)):
        raise ValueError
    return metrics
