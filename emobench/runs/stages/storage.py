"""Full disks, and files and folders that cannot be used: errors in sentences that say what to do."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emobench.core.errors import EmobenchError, StorageError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}
NO_RIGHT = {errno.EACCES, errno.EPERM}
OTHER_TYPE = {errno.ENOTDIR, errno.EEXIST, errno.EISDIR}
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
            text = f"{folder} could not be created: {error.strerror}"
            raise StorageError(f"{text}. Choose another folder with {option} DIR, then {_AGAIN}.") from error
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
        if isinstance(error, OSError) and error.errno is not None:
            text = _of_os(error, root, option)
        elif written := FAILED_WRITE.search(str(error)):
            system, write, short = written.groups()
            text = _not_written(root, CUT_SHORT if short else system or write, option)
        else:
            text = None
        if text is None:
            raise
        raise StorageError(text) from error


def _of_os(error: OSError, root: Path, option: str) -> str | None:
    """Return the sentence for an OSError that the user can fix; None for a bug."""
    place, reason = root if error.filename is None else Path(os.fsdecode(error.filename)), error.strerror or str(error)
    if error.errno in NO_ROOM:
        return _not_written(place, reason, option)
    if not place.resolve().is_relative_to(root.resolve()):
        return None
    if error.errno in OTHER_TYPE:
        return f"{_of_other_type(place)}. Move it elsewhere or choose another folder with {option} DIR, then {_AGAIN}."
    if error.errno not in NO_RIGHT:
        return None
    if _is_unreadable(place):
        return f"{place} cannot be read: {reason}. Make it readable (ls -ld shows its rights), then {_AGAIN}."
    return _not_written(place, reason, option, "Change its rights")


_AGAIN = "run the same command again; finished stages are kept"


def _not_written(place: Path, reason: str, option: str, first: str = "Free some space") -> str:
    return f"{place} could not be written: {reason}. {first} or choose another folder with {option} DIR, then {_AGAIN}."


def _of_other_type(place: Path) -> str:
    """Name the file in place of a folder, or the other way round."""
    if place.is_dir():
        return f"{place} is a folder, where a file belongs"
    return f"{next(path for path in (place, *place.parents) if path.exists())} is a file, where a folder belongs"


def _is_unreadable(place: Path) -> bool:
    """Return whether something is there that this user may not read."""
    try:
        rights = os.R_OK | (os.X_OK if place.is_dir() else 0)
        return place.exists() and not os.access(place, rights, effective_ids=True)
    except PermissionError:  # of a folder above
        return True
