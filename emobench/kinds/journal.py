"""Files of results: lines that survive a kill, each behind its digest, and how many results there must be."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from emobench.core.errors import DataError

UNFINISHED = "unfinished.jsonl"
"""In the folder of the results that it becomes."""
DIGITS = 16


class Journal:
    """A file that grows while work is done; it is removed when the results that it becomes are finished.

    A line that was torn or altered is dropped, and its work is done again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[str]:
        """Return the lines that are whole, and drop all others from the file."""
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        kept = [line for line in lines if _is_whole(line)]
        if len(kept) < len(lines):
            self._path.write_bytes(b"".join(kept))
        return [line[DIGITS + 1 : -1].decode() for line in kept]

    def append(self, lines: Iterable[str]) -> None:
        """Add lines, in one write; their texts have no ends of line."""
        with self._path.open("ab") as file:
            file.write(b"".join(_digest(line.encode()) + b" " + line.encode() + b"\n" for line in lines))


def _is_whole(line: bytes) -> bool:
    text = line[DIGITS + 1 : -1]
    return line == _digest(text) + b" " + text + b"\n"


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest()[:DIGITS].encode()


def require_count(path: Path, what: str, count: int, expected: int) -> None:
    """Raise DataError unless a file holds as many results as the task asks for: fewer give another number."""
    if count != expected:
        raise DataError(
            f"{path} holds {count} {what}, and the task has {expected}; it is not what was generated. Remove "
            f"{path.parent}, then run again."
        )
