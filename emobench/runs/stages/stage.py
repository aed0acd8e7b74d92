"""Stages on disk: each is a folder named by a key of all that determines it, and is there only when it is complete.

    RUNS/<kind>/<key>/          a finished stage; `stage.json` says what the key was made of, `seal.json` what it held
    RUNS/<kind>/<key>.part/     one that is being made, or was interrupted; a training goes on from it
    RUNS/<kind>/<key>.old/      for an instant: one that was made anew steps aside
    RUNS/damaged/<kind>-<key>/  one that was altered after it was finished; it was made anew, and this may be deleted
    RUNS/planned/<key>.json     one that is to be made; the file is removed with its completion (`planning.rebuild`)

A stage is made in the `.part` folder and renamed when complete, under a lock, so that two processes never make the
same one and a killed run leaves nothing that looks finished. What a finished one holds is compared with its seal
before it is used; without a seal nothing is known of it, and it is made anew.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import EmobenchError, StorageError
from emobench.core.locks import locked, remove_abandoned
from emobench.core.seals import Damage, find_damage, write_seal
from emobench.core.settings import canonical_json, content_hash
from emobench.kinds.journal import UNFINISHED
from emobench.runs.signals import require_uninterrupted

if TYPE_CHECKING:
    from emobench.runs.execution.execution import Execution

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
UNUSABLE = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
"""A full or broken disk anywhere, and a folder of ours that cannot be used; any other OSError is somebody's bug."""
FAILED_WRITE = re.compile(
    r"I/O error: (.+) \(os error \d+\)"  # safetensors
    r"|write\(\): fd \d+ failed with (.+)|(inline_container.*unexpected pos \d+ vs \d+"  # torch.save
    r"|\d+ requested and \d+ written)"  # numpy, an OSError without a number
)
CUT_SHORT = "a file was cut short, as on a full disk or at the end of a quota"
"""What the last two mean."""


def require_writable(folder: Path, option: str) -> None:
    """Make a folder, and raise StorageError unless files can be written in it."""
    with storage_errors(folder, option):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError as error:  # a folder above it takes no new folders, as in /proc
            raise PermissionError(errno.EACCES, error.strerror, str(folder)) from error
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(b"emobench")


@contextmanager
def storage_errors(root: Path, option: str = "--runs") -> Iterator[None]:
    """Turn a full disk, and a file or folder in `root` that cannot be used, into a StorageError."""
    try:
        yield
    except EmobenchError:
        raise
    except Exception as error:
        place, reason, written = root, "", FAILED_WRITE.search(str(error))
        if isinstance(error, OSError) and error.errno is not None:
            if error.filename is not None:
                place = Path(os.fsdecode(error.filename))
            if error.errno in NO_ROOM or (error.errno in UNUSABLE and place.resolve().is_relative_to(root.resolve())):
                reason = error.strerror or str(error)
        elif written:
            system, write, short = written.groups()
            reason = CUT_SHORT if short else system or write
        if not reason:  # a bug
            raise
        raise StorageError(
            f"{place} could not be written or read: {reason}. Free some space, change its rights (ls -ld shows them), "
            f"move a file that is in the place of a folder, or choose another folder with {option} DIR. Then run the "
            "same command again; finished stages are kept."
        ) from error


FACTS = "stage.json"
PLANNED = "planned"
DAMAGED = "damaged"
AT_FDCWD, RENAME_EXCHANGE = -100, 2


class Stage:
    """One stored result: `kind` and `facts`, all that determines it, are its key. A plan is a graph of stages.

    Subclasses say what they need and how they are made, in a folder and with the tools of an `Execution`.
    """

    kind: str
    """train, generate, score ...; the folder of its results."""
    described: bool = False
    """Whether a file says how to make it before the work starts; see `planning.rebuild`."""
    continues: bool = False
    """Whether `make` gets the folder of an interrupted attempt as it was left; otherwise an empty one."""
    glance: bool = False
    """Whether large files are compared by size and time alone until something reads them."""

    def __init__(self, kind: str, facts: Mapping[str, Any]) -> None:
        self.kind = kind
        self.facts = facts

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """All that determines the result."""
        raise TypeError(f"{type(self).__name__} has no facts")

    @cached_property
    def key(self) -> str:
        """16 hex digits of the facts' hash."""
        return content_hash({"kind": self.kind, "facts": self.facts})[:16]

    @property
    def title(self) -> str:
        """What a worker makes, as it is shown; empty for a stage that is made along with those that need it."""
        return ""

    @property
    def loads(self) -> str:
        """The key of the training whose model it makes or reads; empty for the model as it is."""
        return ""

    @property
    def needs(self) -> Sequence[Stage]:
        """The stages that are made before this one."""
        return ()

    @property
    def made_of(self) -> Sequence[Stage]:
        """Those of them whose damage outdates this stage: made again, they may differ by another machine's rounding."""
        return ()

    def make(self, folder: Path, tools: Execution) -> None:
        """Write the result into a folder."""
        raise TypeError(f"{type(self).__name__} cannot be made")


class Stages:
    """The folder of all stages of all runs. Stages of the kinds in `anew` are made once more, finished or not.

    `note` gets a sentence for each stage that is made again because it was altered.
    """

    def __init__(self, root: Path, anew: Collection[str] = (), note: Callable[[str], None] = lambda text: None) -> None:
        self.root = root
        self._anew = frozenset(anew)
        self._note = note
        self._made: set[str] = set()
        self._hashed: set[str] = set()

    def folder(self, stage: Stage) -> Path:
        """Return where a stage is when it is finished."""
        return self.root / stage.kind / stage.key

    def unfinished(self, stage: Stage) -> Path:
        """Return where a stage is while it is made."""
        final = self.folder(stage)
        return final.with_name(f"{final.name}.part")

    def is_finished(self, stage: Stage) -> bool:
        """Return whether a stage is complete on disk, at a glance unaltered, and need not be made again."""
        return self.folder(stage).exists() and not self._awaited(stage) and self.damage(stage) is None

    def damage(self, stage: Stage, *, full: bool = False) -> Damage | None:
        """Return the first altered file of a finished stage, at a glance or, with `full`, by all its bytes.

        None for a whole or a missing stage. Files that were added do not count: `make` refuses them.
        """
        damage = self._compared(stage, full) if self.folder(stage).exists() else None
        return None if damage is None or damage.foreign else damage

    def make(
        self, stage: Stage, work: Callable[[Path], None], *, continues: bool = False, glance: bool = False
    ) -> Path:
        """Return the folder of a stage, after making it with `work(folder)` unless it is finished.

        A stage that was altered after it was finished is put aside and made again. All its files are hashed, once by
        these stages; with `glance` large ones only if their size or time changed. With `continues`, `work` gets the
        folder of an interrupted attempt as it was left; otherwise an empty one. A stage that is made again because of
        its kind replaces the old one when it is complete.

        Raises StorageError if a file was added to a finished stage, which might change how it is read.
        """
        final, lock = self.folder(stage), self._lock(stage)
        if self.is_whole(stage, full=not glance):
            remove_abandoned(lock)
            return final
        with storage_errors(self.root), locked(lock):
            _put_back(final)
            # Another process may have made it, or made it again, while this one waited.
            if self.is_whole(stage, full=not glance):
                return final
            if not self._awaited(stage) and (damage := self.damage(stage, full=True)) is not None:
                self._put_aside(stage, str(damage))
            part = self.unfinished(stage)
            if part.exists() and not continues:
                shutil.rmtree(part)
            part.mkdir(parents=True, exist_ok=True)
            require_uninterrupted()
            work(part)
            require_uninterrupted()
            (part / FACTS).write_text(json.dumps(json.loads(canonical_json(stage.facts)), indent=1) + "\n")
            write_seal(part, leave_out=UNFINISHED)
            for path in [*part.rglob("*"), part]:
                _sync(path)
            (part / UNFINISHED).unlink(missing_ok=True)
            _put(part, final)
            (self.root / PLANNED / f"{stage.key}.json").unlink(missing_ok=True)
            self._made.add(stage.key)
            self._hashed.add(stage.key)
        return final

    def drop(self, stage: Stage, why: str) -> None:
        """Put a finished stage aside, whole or not, to be made anew."""
        with storage_errors(self.root), locked(self._lock(stage)):
            if self.folder(stage).exists():
                self._put_aside(stage, why)

    def was_damaged(self, file: Path) -> bool:
        """Return whether the stage of a file, given by its path in the folder of stages, was ever put aside."""
        kind, key, *_ = file.parts
        return (self.root / DAMAGED / f"{kind}-{key}").exists()

    def _lock(self, stage: Stage) -> Path:
        return self.folder(stage).with_name(f"{stage.key}.lock")

    def _awaited(self, stage: Stage) -> bool:
        return stage.kind in self._anew and stage.key not in self._made

    def _compared(self, stage: Stage, full: bool) -> Damage | None:
        """Compare a stage with its seal; each is hashed in full once."""
        with storage_errors(self.root):
            damage = find_damage(self.folder(stage), full=full and stage.key not in self._hashed)
        if damage is None and full:
            self._hashed.add(stage.key)
        return damage

    def is_whole(self, stage: Stage, *, full: bool) -> bool:
        """Return whether a stage is finished, unaltered (in any byte with `full`), and need not be made again.

        Raises StorageError if a file was added to it.
        """
        if self._awaited(stage) or not self.folder(stage).exists():
            return False
        damage = self._compared(stage, full)
        if damage is not None and damage.foreign:
            raise StorageError(f"{damage}, and might change what is read there. Move it elsewhere, then run again.")
        return damage is None

    def _put_aside(self, stage: Stage, why: str) -> None:
        aside = self.root / DAMAGED / f"{stage.kind}-{stage.key}"
        self._note(f"{why}: this {stage.kind} stage runs again; the old one is kept in {aside}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(exist_ok=True)
        self.folder(stage).replace(aside)


def _put(part: Path, final: Path) -> None:
    """Give a finished stage its name. One that has it changes places with it, so that readers always find one."""
    if not final.exists():
        part.replace(final)
    elif _exchange(part, final):
        shutil.rmtree(part, ignore_errors=True)
    else:  # a folder cannot be renamed onto another one
        final.replace(_aside(final))
        part.replace(final)
        shutil.rmtree(_aside(final), ignore_errors=True)
    _sync(final.parent)


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders change names in one step; False where the system or the file system cannot."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    return rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0


def _put_back(final: Path) -> None:
    """Undo what a process left that was killed while it put a stage in the place of another one."""
    old = _aside(final)
    if old.exists() and not final.exists():
        old.replace(final)
    shutil.rmtree(old, ignore_errors=True)


def _aside(final: Path) -> Path:
    return final.with_name(f"{final.name}.old")


def _sync(path: Path) -> None:
    """Make a file or folder durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
