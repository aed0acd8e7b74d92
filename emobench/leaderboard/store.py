"""A board on disk: `<root>/<suite>-v<version>/<id>.json`, one file per entry, appended and superseded, never edited.

A file's name is a hash of its content, so that many processes may append at once without a lock.

`Leaderboard.rows` lists 10,000 entries in less than two seconds: it decodes every file, and checks its hash and the
facts of its `Row`. Whoever needs an entry's numbers reads it (`Leaderboard.read`), which checks all of it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import ConfigError, DataError, EmobenchError, StorageError, UserError
from emobench.core.files import write_whole
from emobench.core.locks import remove_abandoned
from emobench.core.reading import is_folder
from emobench.core.settings import PRETRAINED, build, to_plain
from emobench.leaderboard.comparable import comparison_key
from emobench.leaderboard.entry import (
    SCHEMA_VERSION,
    Entry,
    MetricSummary,
    Model,
    Provenance,
    Run,
    SuiteVersion,
    TrainedObjective,
    entry_id,
    read_entry,
)
from emobench.leaderboard.labels import clean
from emobench.leaderboard.run_files import PACKED

LARGEST = 16 * 2**20
"""Bytes of the largest file that is read as an entry."""
LONGEST = 600
"""Characters of a sentence about a file: what it quotes may have any length."""


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
    """<task>/<metric> of all measured numbers, without missing ones."""
    supersedes: str | None
    runs: tuple[str, ...]
    """The runs' keys."""
    seeds: tuple[int, ...] = ()
    revision: str = ""
    """Of the model, or its source where it has none."""
    objective_version: str = ""
    declared: bool = False

    @property
    def untrained(self) -> bool:
        return self.objective == PRETRAINED


def row_of(entry: Entry, path: Path) -> Row:
    """Return the row of an entry that was read from `path`."""
    facts: dict[str, Any] = {"id": entry.id, "path": path, "kind": entry.kind, "declared": entry.declared}
    facts |= {"suite": entry.suite.name, "suite_version": entry.suite.version}
    facts |= {"model": entry.model.name, "revision": entry.model.revision or entry.model.source}
    facts |= {"objective": entry.objective.name, "objective_version": entry.objective.version}
    facts |= {"label": entry.objective.label, "created": entry.provenance.created}
    facts |= {"comparison_key": comparison_key(entry), "supersedes": entry.supersedes}
    facts |= {"metrics": tuple(entry.metrics), "seeds": tuple(entry.seeds)}
    facts["runs"] = tuple(run.key for run in entry.runs)
    return Row(**facts)


_NO_ROW = (UserError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What unchecked data raises where it holds no row."""


def _unchecked_row(plain: Mapping[str, Any], root: Path, file: str) -> Row:
    """Return the row of the plain data in "folder/name" of a board, of which its hash and the row's facts are checked.

    Raises one of `_NO_ROW` where the data hold none.
    """
    if plain["schema"] != SCHEMA_VERSION or entry_id(plain) != plain["id"]:
        raise ValueError
    entry = object.__new__(Entry)  # without the checks of all the rest, which take as long as reading
    facts = dict(plain)
    facts["suite"] = SuiteVersion(**plain["suite"])
    facts["model"] = build(Model, plain["model"], file)
    facts["objective"] = TrainedObjective(**plain["objective"])
    facts["provenance"] = Provenance(**plain["provenance"])
    facts["runs"] = [Run(seed=None, key=run["key"]) for run in plain["runs"]]
    entry.__dict__.update(facts)
    row = row_of(entry, Path(f"{root}/{file}"))
    texts = (row.id, row.kind, row.suite, row.objective, row.objective_version, *row.runs, row.supersedes or "")
    numbers = (row.suite_version, *row.seeds)
    if {*map(type, texts)} != {str} or {*map(type, numbers)} != {int} or not all("/" in name for name in row.metrics):
        raise ValueError
    if file != f"{row.suite}-v{row.suite_version}/{row.id}.json":
        raise ValueError
    return row


class Leaderboard:
    """The entries under one folder, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.problems: list[str] = []
        """What the last `entries()` or `rows()` skipped, a sentence for each file."""

    def require_folder(self) -> None:
        """Raise DataError if the board has no folder: nothing was recorded in it yet, or its name is mistyped."""
        if not is_folder(self.root):
            raise DataError(self.without_entries())

    def without_entries(self) -> str:
        """Return in a sentence that there is no entry, and how the first is made."""
        what = f"{self.root} has no entry yet" if is_folder(self.root) else f"There is no leaderboard {self.root}"
        return (
            f"{what}: `emobench run --leaderboard {self.root}` records a first entry: a tiny model on a "
            "synthetic language, offline, in a few minutes. Use --leaderboard for another folder."
        )

    def path(self, entry: Entry) -> Path:
        return self.root / file_of(entry)

    def append(self, entry: Entry) -> Path:
        """Write an entry and return its file; nothing happens if it exists already.

        Raises StorageError if another content has its name, the disk is full, the folder cannot be written, or the
        entry is not what its id was made of.
        """
        plain, path = to_plain(entry), self.path(entry)
        if path.exists():
            with contextlib.suppress(EmobenchError):
                if self.read_file(file_of(entry)) == entry:
                    return path
            text = f"{path} exists with other content than the entry {entry.id}: it was altered. Restore or remove it."
            raise StorageError(text)
        if entry_id(plain) != entry.id:
            raise StorageError(
                f"The content of the entry {entry.id} has the id {entry_id(plain)}: it was altered. Make another entry "
                "of it with `new_entry`."
            )
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        hint = "Free space or choose another folder with --leaderboard DIR; finished runs are reused."
        write_whole(path, text, f"The entry {entry.id}", hint)
        for part in path.parent.glob(".*.json.part"):
            remove_abandoned(part)  # of a killed process, whose entry has a name that is not written again
        return path

    def rows(self, *, superseded: bool = False) -> list[Row]:
        """Return light facts of the entries, oldest first.

        With `superseded`, those too that others supersede, whose runs are all among the more runs of another one, or
        that hold the same values of the same runs as an older one: what two boards recorded, and one has after a merge.

        A file that holds no row with its name is skipped, and named in `problems`; whether all of its content is valid
        is only known once it is read.
        """
        self.problems = []
        rows = []
        for file in self.files():
            try:
                rows.append(self._row(file))
            except EmobenchError as error:
                self._problem(error)
        rows.sort(key=lambda row: (row.created, row.id))
        if superseded:
            return rows
        hidden = self._hidden(rows)
        return [row for row in rows if row.id not in hidden]

    def read(self, row: Row) -> Entry:
        """Return the entry of a row, read and verified.

        Raises ConfigError if the file is not what it was, StorageError if it cannot be read.
        """
        try:
            return self.read_file(f"{row.path.parent.name}/{row.path.name}")
        except StorageError as error:
            raise StorageError(self._sentence(error)) from None
        except UserError as error:
            raise ConfigError(self._sentence(error)) from None

    def entries(self, *, suite: str | None = None, superseded: bool = False) -> list[Entry]:
        """Return the entries that `rows` lists, of one suite name if given, all read and verified.

        A file that is no entry is skipped, and named in `problems`.
        """
        entries = []
        for row in self.rows(superseded=superseded):
            try:
                if suite in (None, row.suite):
                    entries.append(self.read(row))
            except EmobenchError as error:
                self.problems.append(str(error))
        return entries

    def files(self) -> Iterator[str]:
        """Yield what should hold entries, as "folder/name"; add what cannot be one to `problems`."""
        for folder, status in self._list(""):
            if not stat.S_ISDIR(status.st_mode) or folder == PACKED:  # a README next to the suites, or files of runs
                continue
            for file, status in self._list(f"{folder}/"):
                if not stat.S_ISREG(status.st_mode):
                    self._problem(f"{file}: is not a file; expected an entry. Move it elsewhere.")
                elif status.st_size > LARGEST:
                    self._problem(f"{file}: has {status.st_size} bytes; expected an entry. Move it elsewhere.")
                else:
                    yield file

    def _list(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield the items of a folder of the board, by name, without those that begin with a dot."""
        try:
            with os.scandir(self.root / folder) as listed:
                items = sorted((item for item in listed if not item.name.startswith(".")), key=lambda item: item.name)
        except FileNotFoundError:
            return
        except OSError as error:
            self._problem(f"{folder.rstrip('/')}: cannot be listed ({error.strerror}).")
            return
        for item in items:
            try:
                yield f"{folder}{item.name}", item.stat()
            except OSError as error:  # such as a link to nothing
                self._problem(f"{folder}{item.name}: cannot be read ({error.strerror}).")

    def _row(self, file: str) -> Row:
        """Return the row of a file. Raises what `read_file` raises."""
        with contextlib.suppress(*_NO_ROW):
            return _unchecked_row(_JSON.decode(self._content(file).decode()), self.root, file)
        return row_of(self.read_file(file), self.root / file)  # says what is wrong

    def read_file(self, file: str) -> Entry:
        """Read and verify the entry in "folder/name".

        Raises StorageError if it cannot be read, and a UserError that begins with `file` if it is no entry.
        """
        entry = parse(self._content(file), file)
        if file != file_of(entry):
            raise ConfigError(f"{file}: holds the entry that belongs in {file_of(entry)}. Move it there.")
        return entry

    def _content(self, file: str) -> bytes:
        try:
            with Path(f"{self.root}/{file}").open("rb", buffering=0) as opened:  # three times as fast as `read_bytes`
                return opened.read()
        except OSError as error:
            raise StorageError(f"{file}: cannot be read ({error.strerror}).") from error

    def _hidden(self, rows: Sequence[Row]) -> set[str]:
        """Return the ids of rows that another one stands for. Only entries that can be read hide others."""
        stands_for = {}
        for new, old, why in claims(rows):
            with contextlib.suppress(EmobenchError):
                if not why and self.read(new):
                    stands_for[old.id] = new.id

        def last(key: str) -> str:
            while key in stands_for:
                key = stands_for[key]
            return key

        holders = {}
        for row in sorted(rows, key=lambda row: (row.id not in stands_for, -len(set(row.runs)), row.created, row.id)):
            for other in holders.get((row.comparison_key, row.label, min(row.runs, default="")), []):
                # Whoever supersedes one of several twins supersedes them all.
                if row.id not in stands_for and set(row.runs) <= set(other.runs) and last(other.id) != row.id:
                    with contextlib.suppress(EmobenchError):
                        if _holds(self.read(other), self.read(row)):
                            stands_for[row.id] = other.id
            for key in set(row.runs):
                holders.setdefault((row.comparison_key, row.label, key), []).append(row)
        return set(stands_for)

    def _problem(self, text: object) -> None:
        self.problems.append(self._sentence(text))

    def _sentence(self, text: object) -> str:
        """Return a sentence that begins with a file's name, with its folder; names are untrusted."""
        return clean(f"{self.root}/{text}"[:LONGEST])


_JSON = json.JSONDecoder(parse_constant={}.__getitem__)
"""Refuses NaN and Infinity, which Python would read, with a KeyError."""


def parse(content: bytes, where: str) -> Entry:
    """Read and verify the entry in a file's content, wherever it lies; raises a UserError that begins with `where`."""
    try:
        return read_entry(_JSON.decode(content.decode()), where)
    except (KeyError, ValueError, RecursionError) as error:
        text = f"{where}: not the JSON of an entry ({error}); it may be truncated. Restore or remove it."
        raise ConfigError(text) from None


def file_of(entry: Entry) -> str:
    """Return "folder/name" of an entry's file on any board."""
    return f"{entry.suite.name}-v{entry.suite.version}/{entry.id}.json"


def claims(rows: Sequence[Row]) -> Iterator[tuple[Row, Row, str]]:
    """Yield the rows that name one that they supersede, with that row, and why they may not ("" if they may).

    What an entry says of itself is not enough: it may be a stranger's.
    """
    by_id = {row.id: row for row in rows}
    for new in rows:
        old = by_id.get(new.supersedes or "")
        if old is not None:
            yield new, old, _why_not(new, old)


_SAME = ("kind", "suite", "suite_version", "objective_version", "label", "revision")
"""Facts that a row and the one that it supersedes have alike; so is the name of a model without a revision."""


def _why_not(new: Row, old: Row) -> str:
    """Return why a row may not supersede another one; "" if it may.

    It has the same objective, model and suite, and at least the runs and seeds of the other. An import that was renamed
    is of the same files, whose digests are the keys of its runs, and so is a new declaration of a checkpoint.
    """
    renamed = new.kind == old.kind == "imported" or (new.declared and old.declared)
    if renamed and new.runs and sorted(new.runs) == sorted(old.runs):
        return ""
    for name in _SAME if new.revision else (*_SAME, "model"):
        mine, others = getattr(new, name), getattr(old, name)
        if mine != others:
            return f"its {name.replace('_', ' ')} is {mine}, and the other's is {others}"
    if not set(old.seeds) <= set(new.seeds):
        return f"it has the seeds {list(new.seeds)}, and the other has {list(old.seeds)}"
    if bool(new.runs) != bool(old.runs) or not set(old.runs) <= set(new.runs):
        return "it is of other runs"
    return ""


def _holds(more: Entry, fewer: Entry) -> bool:
    """Return whether an entry has all numbers of another one: a run's key is public, and may be claimed.

    It has the same value of each run of each metric, but for rounding.
    """
    if more.objective != fewer.objective:
        return False
    for name, metric in fewer.metrics.items():
        if name not in more.metrics:
            return False
        theirs = _by_run(more, more.metrics[name])
        for key, value in _by_run(fewer, metric).items():
            if not math.isclose(theirs.get(key, math.nan), value, rel_tol=1e-6):
                return False
    return True


def _by_run(entry: Entry, metric: MetricSummary) -> dict[str, float]:
    return dict(zip((run.key for run in entry.runs), metric.values, strict=False))
