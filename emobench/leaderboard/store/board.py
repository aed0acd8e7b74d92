"""A board on disk: `<root>/<suite>-v<version>/<id>.json`, one file per entry, appended and superseded, never edited.

A file's name is a hash of its content, so that many processes may append at once without a lock.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import stat
from collections.abc import Iterable, Iterator
from json import JSONDecoder
from pathlib import Path
from typing import NoReturn

from emobench.core.errors import ConfigError, DataError, EmobenchError, StorageError, UserError
from emobench.core.files import write_whole
from emobench.core.locks import remove_abandoned
from emobench.core.reading import is_folder
from emobench.core.settings import to_plain
from emobench.leaderboard.schema.entry import SCHEMA_VERSION, Entry, entry_id, read_entry
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.schema.migrations import migrate
from emobench.leaderboard.schema.run_files import PACKED
from emobench.leaderboard.store.index import NO_ROW, Index, Row, row_of, row_of_plain
from emobench.leaderboard.store.superseding import containing, holds, superseded_by

LARGEST = 16 * 2**20
"""Bytes of the largest file that is read as an entry."""
LONGEST = 600
"""Characters of a sentence about a file: what it quotes may have any length."""
_INSTALLED = Path(__file__).with_name("data") / "published"
_CHECKOUT = Path(__file__).parents[3] / "leaderboards" / "published"


def _refuse_constant(token: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python would read."""
    raise ValueError(f"{token} is not a number of JSON")


_JSON = JSONDecoder(parse_constant=_refuse_constant)


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Pause the garbage collector: all that is read is kept, and looking through it would be a tenth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def published_root() -> Path:
    """Return the folder of the papers' numbers: in an installed package next to this module, else in the checkout."""
    return _INSTALLED if _INSTALLED.is_dir() else _CHECKOUT


class Leaderboard:
    """The entries under one folder, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.problems: list[str] = []
        """What the last `entries()` or `rows()` skipped, a sentence for each file."""

    def require_folder(self) -> None:
        """Raise DataError where the board has no folder: nothing was recorded in it yet, or its name is mistyped."""
        if not is_folder(self.root):
            raise DataError(self.without_entries())

    def without_entries(self) -> str:
        """Return in a sentence that there is no entry, and how the first is made."""
        what = f"{self.root} has no entry yet" if is_folder(self.root) else f"There is no leaderboard {self.root}"
        return (
            f"{what}: `emobench run --leaderboard {self.root}` makes the first entry, of a tiny model on a made-up "
            "language, offline, in a few minutes. Another folder is named with --leaderboard."
        )

    def path(self, entry: Entry) -> Path:
        return self.root / file_of(entry)

    def append(self, entry: Entry) -> Path:
        """Write an entry and return its file; nothing happens where it is there already.

        Raises StorageError where another content has its name, the disk is full, the folder cannot be written, or the
        entry is not what its id was made of. The last is also so of one that was migrated from an older schema: only
        its file can be taken to another board.
        """
        plain, path = to_plain(entry), self.path(entry)
        if path.exists():
            with contextlib.suppress(OSError, UserError):
                if read_file(self.root, file_of(entry)) == entry:
                    return path
            text = f"{path} exists with other content than the entry {entry.id}: it was altered. Restore or remove it."
            raise StorageError(text)
        if entry_id(plain) != entry.id:
            raise StorageError(
                f"The content of the entry {entry.id} has the id {entry_id(plain)}. Where it was altered, make another "
                f"entry of it with `new_entry`; where it was read from a file of an older schema, copy that to {path}."
            )
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        hint = "Free space or choose another folder with --leaderboard DIR; finished runs are reused."
        write_whole(path, text, f"The entry {entry.id}", hint)
        for part in path.parent.glob(".*.json.part"):
            remove_abandoned(part)  # of a killed process, whose entry has a name that is not written again
        return path

    @_uncollected()
    def rows(self, *, superseded: bool = False) -> list[Row]:
        """Return light facts of the entries, oldest first, with the help of an index that is kept in the board.

        With `superseded`, those too that others supersede, whose runs are all among the more runs of another one, or
        that hold the same values of the same runs as an older one: what two boards recorded, and one has after a merge.

        A file whose content is not that of an entry with its name is skipped, and named in `problems`; whether all
        of that content is valid is only known once it is read.
        """
        self.problems = []
        rows = list(self._scan())
        hidden = set() if superseded else self._hidden(rows)
        return sorted((row for row in rows if row.id not in hidden), key=lambda row: (row.created, row.id))

    def _hidden(self, rows: list[Row]) -> set[str]:
        """Return the ids of rows that another one stands for."""
        by, larger = superseded_by(rows), containing(rows)
        hidden = set(by)
        for fewer in rows:
            if any(self._holds(more, fewer) for more in larger.get(fewer.id, ())):
                hidden.add(fewer.id)
        by_runs: dict[tuple[str, frozenset[str]], list[Row]] = {}
        for row in rows:
            if row.runs:
                by_runs.setdefault((row.comparison_key, frozenset(row.runs)), []).append(row)
        for shared in by_runs.values():
            ids = {row.id for row in shared}
            left = len(ids - hidden)
            if left > 1 or (left and any(by.get(one, one) not in ids for one in ids)):
                for alike in self._duplicates(shared):
                    if any(by.get(one, one) not in alike for one in alike):  # what supersedes one supersedes them all
                        hidden.update(alike)
                    else:
                        hidden.update([one for one in alike if one not in hidden][1:])
        return hidden

    def _holds(self, more: Row, fewer: Row) -> bool:
        try:
            return holds(self.read(more), self.read(fewer))
        except EmobenchError:  # what cannot be read hides nothing
            return False

    def _duplicates(self, shared: list[Row]) -> Iterable[list[str]]:
        """Return the ids, oldest first, of entries of the same runs that can be read and say the same of them."""
        by_results: dict[str, list[str]] = {}
        for row in sorted(shared, key=lambda row: (row.created, row.id)):
            with contextlib.suppress(EmobenchError):
                by_results.setdefault(_results(self.read(row)), []).append(row.id)
        return by_results.values()

    def read(self, row: Row) -> Entry:
        """Return the entry of a row, read and verified.

        Raises ConfigError where the file is no longer what it was, StorageError where it cannot be read.
        """
        try:
            return read_file(self.root, f"{row.path.parent.name}/{row.path.name}")
        except UserError as error:
            raise ConfigError(self._sentence(error)) from None
        except OSError as error:
            raise StorageError(f"{row.path}: cannot be read ({error.strerror}).") from error

    @_uncollected()
    def entries(self, *, suite: str | None = None, superseded: bool = False) -> list[Entry]:
        """Return the entries that `rows` lists, of one suite name if asked for, all read and verified.

        A file that is no entry is skipped, and named in `problems`.
        """
        found = []
        for row in self.rows(superseded=superseded):
            if suite in (None, row.suite):
                try:
                    found.append(self.read(row))
                except EmobenchError as error:
                    self.problems.append(str(error))
        return found

    def _scan(self) -> Iterator[Row]:
        index = Index(self.root)
        for file, status in self.files():
            known = index.get(file, status)
            if known is None:
                try:
                    known = self._row(file)
                except OSError as error:  # of the moment, not of the content
                    self._problem(f"{file}: cannot be read ({error.strerror}).")
                    continue
                except UserError as error:
                    known = str(error)
                index.put(file, status, known)
            if isinstance(known, Row):
                yield known
            else:
                self._problem(known)
        index.save()

    def _row(self, file: str) -> Row:
        """Return the row of a file whose content has the hash in its name. Raises what `read_file` raises."""
        content = _content(self.root, file)
        with contextlib.suppress(*NO_ROW):
            plain = _JSON.decode(content.decode())
            if entry_id(plain) == plain["id"]:
                return row_of_plain(migrate(plain, SCHEMA_VERSION, file), self.root, file)
        return row_of(_entry(content, file), self.root / file)  # says what is wrong

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
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
                    yield file, status

    def _list(self, folder: str) -> Iterator[tuple[str, os.stat_result]]:
        """Yield what is in a folder of the board, by name; what begins with a dot is not part of the board."""
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

    def _problem(self, text: str) -> None:
        self.problems.append(self._sentence(text))

    def _sentence(self, text: object) -> str:
        """Return a sentence that begins with a file's name, with its folder; names are untrusted."""
        return clean(f"{self.root}/{text}"[:LONGEST])


def read_file(root: Path, file: str) -> Entry:
    """Read and verify the entry in "folder/name" of a board. Raises OSError, or a UserError that begins with `file`."""
    return _entry(_content(root, file), file)


def _content(root: Path, file: str) -> bytes:
    with Path(f"{root}/{file}").open("rb", buffering=0) as opened:  # `read_bytes` takes three times as long
        return opened.read()


def _entry(content: bytes, file: str) -> Entry:
    entry = parse(content, file)
    if file != file_of(entry):
        raise ConfigError(f"{file}: holds the entry that belongs in {file_of(entry)}. Move it there.")
    return entry


def parse(content: bytes, where: str) -> Entry:
    """Read and verify the entry in a file's content, wherever it lies; raises a UserError that begins with `where`."""
    try:
        return read_entry(_JSON.decode(content.decode()), where)
    except (ValueError, RecursionError) as error:
        text = f"{where}: not the JSON of an entry ({error}); it may be truncated. Restore or remove it."
        raise ConfigError(text) from None


def file_of(entry: Entry) -> str:
    """Return "folder/name" of an entry's file on any board."""
    return f"{entry.suite.name}-v{entry.suite.version}/{entry.id}.json"


def _results(entry: Entry) -> str:
    """Return what an entry says of its runs, in the order of their keys."""
    order = sorted(range(len(entry.runs)), key=lambda place: entry.runs[place].key)
    metrics = {}
    for name, metric in sorted(entry.metrics.items()):
        values = [metric.values[place] for place in order] if len(metric.values) == len(order) else metric.values
        metrics[name] = [values, metric.mean, metric.std, metric.ci95]
    return repr((entry.objective, metrics, sorted(entry.missing)))
