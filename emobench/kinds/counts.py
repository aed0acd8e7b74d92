"""How much a file of results has to hold, by what the task's data and rules say."""

from __future__ import annotations

from pathlib import Path

from emobench.errors import DataError


def require_count(path: Path, what: str, found: int, expected: int) -> None:
    """Raise DataError unless a file holds as many results as the task asks for: fewer give another number."""
    if found != expected:
        raise DataError(
            f"{path} holds {found} {what}, and the task has {expected}; it is not what was generated. Remove "
            f"{path.parent}, then run again."
        )
