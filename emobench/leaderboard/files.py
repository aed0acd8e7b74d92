"""Writing a file whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from emobench.errors import StorageError


def write_whole(path: Path, text: str, what: str, hint: str) -> None:
    """Write UTF-8 text so that `path` is whole or absent at any instant, also after a power cut.

    A temporary file in the same folder is synced and renamed. Folders are made. Raises StorageError, a sentence
    made of `what` (its subject) and `hint` (what to do), and leaves no temporary file.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with part.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
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
