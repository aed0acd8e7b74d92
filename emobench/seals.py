"""The seal of a finished folder: the size, time of change and sha256 of each of its files, in its `seal.json`.

What is read again is compared with it: in full, or at a glance, where a large file is hashed only if its size or time
is another one. Hidden files are nobody's (a file system's, an editor's), and are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from emobench.config import file_sha256

SEAL = "seal.json"
SMALL = 2**20
"""Bytes of a file that is hashed at a glance, too: it takes no longer than opening it."""


class _File(NamedTuple):
    size: int
    changed_ns: int
    sha256: str


@dataclass(frozen=True)
class Damage:
    """What is wrong with a sealed folder."""

    path: Path
    what: str
    """Such as "was altered after it was written"."""
    foreign: bool = False
    """Whether it is a file that was added; all others are whole."""

    def __str__(self) -> str:
        return f"{self.path} {self.what}"


def write_seal(folder: Path, leave_out: str = "") -> None:
    """Seal a folder, without the subfolder `leave_out`; what an earlier seal tells of unchanged files is taken over.

    The seal is the last file of a folder, and whole at once: with it, the folder is finished.
    """
    known = _read(folder) or {}
    found = {}
    for name, path in _files(folder, leave_out):
        status = path.stat()
        at_glance = status.st_size, status.st_mtime_ns
        sealed = known.get(name)
        digest = sealed.sha256 if sealed is not None and sealed[:2] == at_glance else file_sha256(path)
        found[name] = _File(*at_glance, digest)
    part = folder / f".{SEAL}.part"
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(folder / SEAL)


def find_damage(folder: Path, *, full: bool, leave_out: str = "", only: str = "") -> Damage | None:
    """Return the first thing in a folder that is not as it was sealed, None where all is; `only` asks for one file.

    With `full`, all files are hashed. Raises OSError for a file that cannot be read.
    """
    sealed = _read(folder)
    if sealed is None:
        return Damage(folder / SEAL, "is not there" if not (folder / SEAL).exists() else "cannot be understood")
    for name, file in sealed.items():
        if only in ("", name) and (what := _difference(folder / name, file, full)):
            return Damage(folder / name, what)
    added = next((path for name, path in _files(folder, leave_out) if only in ("", name) and name not in sealed), None)
    return None if added is None else Damage(added, "was added to what is finished", foreign=True)


def _difference(path: Path, sealed: _File, full: bool) -> str:
    if not path.is_file():
        return "is gone" if not path.exists() else "is no file any more"
    status = path.stat()
    if status.st_size == sealed.size:
        trusted = not full and status.st_size > SMALL and status.st_mtime_ns == sealed.changed_ns
        if trusted or file_sha256(path) == sealed.sha256:
            return ""
    return "was altered after it was written"


def _files(folder: Path, leave_out: str) -> Iterator[tuple[str, Path]]:
    """Yield each file that a seal is about, with its name in the folder."""
    for path in sorted(folder.rglob("*")):
        inner = path.relative_to(folder)
        hidden = any(part.startswith(".") for part in inner.parts)
        if not hidden and inner.parts[0] not in (SEAL, leave_out) and path.is_file():
            yield inner.as_posix(), path


def _read(folder: Path) -> dict[str, _File] | None:
    """Return what a folder's seal says, None where there is none that can be understood."""
    try:
        plain = json.loads((folder / SEAL).read_text())
        return {name: _File(int(size), int(changed), str(digest)) for name, (size, changed, digest) in plain.items()}
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return None
    except (AttributeError, TypeError, ValueError, RecursionError):
        return None
