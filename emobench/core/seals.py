"""The seal of a finished folder: `seal.json` with the size, modification time and sha256 of each file.

A check compares the files with the seal. A full check hashes every file; a quick check hashes a large file only if its
size or modification time changed. Hidden files (of file systems or editors) are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from emobench.core.settings import file_sha256

SEAL = "seal.json"
SMALL = 2**20
"""Files up to this size in bytes are hashed in a quick check, too: this is as fast as opening them."""


class _File(NamedTuple):
    size: int
    changed_ns: int
    sha256: str


@dataclass(frozen=True)
class Damage:
    """A difference between a folder and its seal."""

    path: Path
    what: str
    """Such as "was altered after it was written"."""
    foreign: bool = False
    """Whether a file was added, and all sealed files are unchanged."""

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def write_seal(folder: Path, leave_out: str = "") -> None:
    """Seal a folder, except the subfolder `leave_out`. Digests of unchanged files come from an earlier seal.

    The seal is the last file of a folder and is renamed into place: a folder with a seal is finished.
    """
    known = _read(folder) or {}
    files = {}
    for name, path in _files(folder, leave_out):
        status = path.stat()
        size_and_time = status.st_size, status.st_mtime_ns
        sealed = known.get(name)
        digest = sealed.sha256 if sealed is not None and sealed[:2] == size_and_time else file_sha256(path)
        files[name] = _File(*size_and_time, digest)
    part = folder / f".{SEAL}.part"
    part.write_text(json.dumps(files, indent=1) + "\n")
    part.replace(folder / SEAL)


def find_damage(folder: Path, *, full: bool, leave_out: str = "", only: str = "") -> Damage | None:
    """Return the first difference between a folder and its seal, or None. `only` checks a single file.

    With `full`, all files are hashed. Raises OSError for a file that cannot be read.
    """
    sealed = _read(folder)
    if sealed is None:
        problem = "cannot be understood" if (folder / SEAL).exists() else "is not there"
        return Damage(folder / SEAL, problem)
    for name, file in sealed.items():
        if only not in ("", name):
            continue
        problem = _difference(folder / name, file, full)
        if problem:
            return Damage(folder / name, problem)
    for name, path in _files(folder, leave_out):
        if only in ("", name) and name not in sealed:
            return Damage(path, "was added after the folder was finished", foreign=True)
    return None


def _difference(path: Path, sealed: _File, full: bool) -> str:
    if not path.is_file():
        return "is gone" if not path.exists() else "is not a file any more"
    status = path.stat()
    if status.st_size == sealed.size:
        trusted = not full and status.st_size > SMALL and status.st_mtime_ns == sealed.changed_ns
        if trusted or file_sha256(path) == sealed.sha256:
            return ""
    return "was altered after it was written"


def _files(folder: Path, leave_out: str) -> Iterator[tuple[str, Path]]:
    """Yield each file for the seal, with its name in the folder."""
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inner.parts)
        if not hidden and inner.parts[0] not in (SEAL, leave_out) and path.is_file():
            yield inner.as_posix(), path


def _read(folder: Path) -> dict[str, _File] | None:
    """Return the content of a folder's seal, or None if it is missing or cannot be read."""
    try:
        plain = json.loads((folder / SEAL).read_text())
        files = {}
        for name, (size, changed, digest) in plain.items():
            files[name] = _File(int(size), int(changed), str(digest))
        return files
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
