"""Stages on disk: each is a folder named by a key of all that determines it, and is there only when it is complete.

    RUNS/<kind>/<key>/          a finished stage; `stage.json` says what the key was made of
    RUNS/<kind>/<key>.part/     one that is being made, or was interrupted; a training goes on from it
    RUNS/<kind>/<key>.old/      for an instant: one that was made anew steps aside

A stage is made in the `.part` folder and renamed when complete, under a lock, so that two processes never make the
same one and a killed run leaves nothing that looks finished.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.config import canonical_json, content_hash
from emobench.errors import EmobenchError, StorageError

FACTS = "stage.json"
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
NO_RIGHT = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
"""A full or broken disk anywhere, and a folder of ours that cannot be used; any other OSError is somebody's bug."""
FAILED_WRITE = re.compile(
    r"I/O error: (.+) \(os error \d+\)"  # safetensors
    r"|write\(\): fd \d+ failed with (.+)|inline_container.*(unexpected pos \d+ vs \d+)"  # torch.save
)


@dataclass(frozen=True)
class Stage:
    """A stage that may or may not have been made yet."""

    kind: str
    """train, generate or score."""
    facts: Mapping[str, Any]
    """All that determines the output."""

    @property
    def key(self) -> str:
        """16 hex digits of the facts' hash."""
        return content_hash({"kind": self.kind, "facts": self.facts})[:16]


class Stages:
    """The folder of all stages of all runs. Those of the kinds in `anew` are made once more, finished or not."""

    def __init__(self, root: Path, anew: Collection[str] = ()) -> None:
        self.root = root
        self._anew = frozenset(anew)
        self._made: set[str] = set()

    def folder(self, stage: Stage) -> Path:
        """Return where a stage is when it is finished."""
        return self.root / stage.kind / stage.key

    def is_finished(self, stage: Stage) -> bool:
        """Return whether a stage is complete on disk, and need not be made anew."""
        awaited = stage.kind in self._anew and stage.key not in self._made
        return not awaited and (self.folder(stage) / FACTS).is_file()

    def make(self, stage: Stage, work: Callable[[Path], None], *, continues: bool = False) -> Path:
        """Return the folder of a stage, after making it with `work(folder)` unless it is finished.

        With `continues`, `work` gets the folder of an interrupted attempt as it was left; otherwise an empty one.
        One that is made anew takes the old one's place when it is complete: until then the old one is there.
        """
        final = self.folder(stage)
        if self.is_finished(stage):
            return final
        part = final.with_name(f"{final.name}.part")
        with storage_errors(self.root), _lock(final.with_name(f"{final.name}.lock")):
            _put_back(final)
            if self.is_finished(stage):  # another process made it while this one waited
                return final
            if part.exists() and not continues:
                shutil.rmtree(part)
            part.mkdir(parents=True, exist_ok=True)
            work(part)
            (part / FACTS).write_text(json.dumps(json.loads(canonical_json(stage.facts)), indent=1) + "\n")
            _sync(part)
            _put(part, final)
            self._made.add(stage.key)
        return final


def _put(part: Path, final: Path) -> None:
    """Give a finished stage its name. One that has it steps aside: a folder cannot be renamed onto another one."""
    old = _aside(final)
    if final.exists():
        final.replace(old)
    part.replace(final)
    _sync_one(final.parent)
    shutil.rmtree(old, ignore_errors=True)


def _put_back(final: Path) -> None:
    """Undo what a process left that was killed while it put a stage in the place of another one."""
    old = _aside(final)
    if old.exists() and not final.exists():
        old.replace(final)
    shutil.rmtree(old, ignore_errors=True)


def _aside(final: Path) -> Path:
    return final.with_name(f"{final.name}.old")


def require_writable(folder: Path, option: str) -> None:
    """Make a folder, and raise StorageError unless files can be written in it."""
    with storage_errors(folder, option):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"emobench")


@contextmanager
def storage_errors(root: Path, option: str = "--runs") -> Iterator[None]:
    """Turn a full disk or an unwritable folder into a StorageError."""
    try:
        yield
    except EmobenchError:
        raise
    except Exception as error:
        place = (error.filename if isinstance(error, OSError) else None) or root
        reason = _failed_write(error, root)
        if reason is None:
            raise
        raise StorageError(
            f"{place} could not be written: {reason}. Free some space or choose another folder with {option} DIR, then "
            "run the same command again; finished stages are kept."
        ) from error


def _failed_write(error: Exception, root: Path) -> str | None:
    """Return why a write failed; None for any other error. safetensors and torch.save have no OSError for it."""
    if isinstance(error, OSError):
        ours = error.filename is None or Path(os.fsdecode(error.filename)).is_relative_to(root)
        return error.strerror if error.errno in NO_ROOM or (error.errno in NO_RIGHT and ours) else None
    found = FAILED_WRITE.search(str(error))
    return next(filter(None, found.groups())) if found else None


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    path.unlink(missing_ok=True)


def _sync(folder: Path) -> None:
    """Make a folder's files durable before it gets its final name."""
    for path in [*folder.rglob("*"), folder]:
        _sync_one(path)


def _sync_one(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
