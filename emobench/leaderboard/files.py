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
    made. Raises StorageError, a sentence made of `what` (its subject) and `hint` (what to do), and leaves no temporary
    file.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with open_locked(part) as file:
            try:
                file.truncate(0)
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
        _sync_folder(path.parent)
    except OSError as error:
        raise StorageError(
            f"{what} could not be written to {path.parent}: {error.strerror or error}. {hint}"
        ) from error


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the file itself is there by now
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
