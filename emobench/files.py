"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from emobench.errors import StorageError
from emobench.locks import open_locked


def write_whole(path: Path, text: str, what: str, hint: str) -> None:
    """Write UTF-8 text so that `path` is whole or absent at any instant, also after a power cut.

    A temporary file in the same folder is synced and renamed; one that a killed process left is used again. Folders are
    made. What is no file, such as /dev/null, is written to and stays. Raises StorageError, a sentence made of
    `what` (its subject) and `hint` (what to do), and leaves no temporary file.
    """
    try:
        if path.exists() and not path.is_file():
            _write_to_device(path, text.encode())
        else:
            _write_file(path, text.encode())
    except OSError as error:
        raise StorageError(
            f"{what} could not be written to {path.parent}: {error.strerror or error}. {hint}"
        ) from error


def _write_file(path: Path, data: bytes) -> None:
    part = path.with_name(f".{path.name}.part")
    with open_locked(part) as file:
        try:
            file.truncate(0)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    _sync_folder(path.parent)


def _write_to_device(path: Path, data: bytes) -> None:
    """Write to a device or a pipe: a rename would take its place. A pipe without a reader is an error, not a wait."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the file itself is there by now
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
