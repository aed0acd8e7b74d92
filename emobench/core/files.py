"""Write a file or a folder completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from emobench.core.errors import ModelError, StorageError
from emobench.core.locks import open_locked

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS)
_FREE = re.compile(r"^Free (?:some )?space(?: there)?")


def write_whole(path: Path, content: str | bytes, what: str, hint: str, *, synced: bool = True) -> None:
    """Write text, as UTF-8, or bytes. At any time `path` is complete or absent, also after a power failure.

    A temporary file in the same folder is synced and renamed; a file that a killed process left is reused. Missing
    folders are created. A device such as /dev/null is written to directly. Raises StorageError and leaves no temporary
    file; `what` is the subject of the message and `hint` says what to do.

    Without `synced`, `path` may be empty after a power failure: for many files that can be written again.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if path.exists() and not path.is_file():
            path.write_bytes(data)  # a rename would replace the device
        else:
            _write_file(path, data, synced)
    except OSError as error:
        raise StorageError(
            f"{what} could not be written to {path.parent}: {error.strerror or error}. {_advice(error, hint)}"
        ) from error


@contextlib.contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a temporary folder, and rename it to `out` at the end: `out` is complete or absent.

    Raises ModelError if `out` exists, and StorageError if it cannot be written.
    """
    if out.exists():
        raise ModelError(f"{out} exists; give a folder that does not.")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as temporary:
            folder = Path(temporary) / out.name
            folder.mkdir()
            yield folder
            folder.rename(out)
    except OSError as error:
        raise StorageError(f"{out} could not be written: {error.strerror or error}.") from None


def _advice(error: OSError, hint: str) -> str:
    """Return a hint that begins with freeing space, or for another reason with what helps then."""
    if error.errno in NO_ROOM or error.errno is None:
        return hint
    instead = "Change its rights (ls -ld shows them)" if error.errno in NO_RIGHT else "Give a place that can be written"
    return _FREE.sub(instead, hint)


def _write_file(path: Path, data: bytes, synced: bool) -> None:
    part = path.with_name(f".{path.name}.part")
    with open_locked(part) as file:
        try:
            file.truncate(0)
            file.write(data)
            file.flush()
            if synced:
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    if not synced:
        return
    with contextlib.suppress(OSError):  # some file systems cannot sync a folder; the file is already synced
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
