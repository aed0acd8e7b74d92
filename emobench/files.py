"""Write a file completely or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from emobench.errors import StorageError
from emobench.locks import open_locked


def write_whole(path: Path, text: str, what: str, hint: str) -> None:
    """Write UTF-8 text. At any time `path` is complete or absent, also after a power failure.

    A temporary file in the same folder is synced and renamed; a file that a killed process left is reused. Missing
    folders are created. A device such as /dev/null is written to directly. Raises StorageError and leaves no temporary
    file; `what` is the subject of the message and `hint` says what to do.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")  # a rename would replace the device
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


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the file is already synced
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
