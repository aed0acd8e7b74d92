"""A lock between processes by a file. The file exists only while a process holds the lock or waits for it."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from emobench.core.errors import StorageError

_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait for the lock of `path` and hold it. The kernel releases the lock of a killed process.

    Raises StorageError if the file system has no locks.
    """
    with open_locked(path):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def remove_abandoned(path: Path) -> None:
    """Remove the file that a killed process had locked. A file whose lock is held does not change."""
    with suppress(OSError), os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_named(file.fileno(), path):
            path.unlink()


@contextmanager
def open_locked(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, and create it if it is absent. Only one process can have it open by this function.

    This process may rename or remove the file. Waiting processes then have a file without this name, and try again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        # In a board from someone else, the name might be a link to another file, or a pipe.
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o666), "r+b") as file:
            _wait(file.fileno(), path)
            if _is_named(file.fileno(), path):
                yield file
                return


def _wait(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        text = f"{path.parent} is on a file system without locks ({error.strerror}). Choose another file system."
        raise StorageError(text) from error


def _is_named(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    return False
