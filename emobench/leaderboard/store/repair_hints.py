"""What to type to mend a file of a board: git's copy of it where git tracks it, and nothing that destroys a stray."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from emobench.leaderboard.store.board import LONGEST

_ENTRY = re.compile(r"[0-9a-f]{12}\.json")
_BESIDE = re.compile(r"(README|LICENSE)(\.\w+)?|.*\.toml|\..*", re.DOTALL)


def named_as_entry(path: Path) -> bool:
    """Return whether a file's name is one that an entry can have."""
    return _ENTRY.fullmatch(path.name) is not None


def belongs_beside(path: Path) -> bool:
    """Return whether a file may lie beside the folders of suites: a README, a licence, settings, a hidden file."""
    return _BESIDE.fullmatch(path.name) is not None


class Mending:
    """Knows what git tracks; git is asked once for each folder, and need not be installed."""

    def __init__(self) -> None:
        self._tracked: dict[Path, frozenset[str]] = {}

    def wrong(self, path: Path, said: str) -> str:
        """Return what was said of an entry's file whose content is wrong, and what to type; nothing of a newer one."""
        if "Install a newer" in said:
            return said[:LONGEST]
        advice = f"Remove it, and the command that recorded it records it anew: rm {shlex.quote(str(path))}"
        if self._is_tracked(path):
            advice = f"Restore it: {_restore(path)}"
        return f"{said.removesuffix(' Restore or remove it.')[:LONGEST]} {advice}"

    def lost(self, path: Path) -> str:
        """Return the advice for an entry's file that is gone."""
        if self._is_tracked(path):
            return f"Restore it: {_restore(path)}"
        return f"Copy it from a board that has it to {path}"

    def _is_tracked(self, path: Path) -> bool:
        if path.parent not in self._tracked:
            self._tracked[path.parent] = _tracked(path.parent)
        return path.name in self._tracked[path.parent]


def _tracked(folder: Path) -> frozenset[str]:
    # A board may be a stranger's repository, whose own settings would name a program to start.
    command = ["git", "-C", str(folder), "-c", "core.fsmonitor=false", "ls-files", "-z"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return frozenset()
    return frozenset(os.fsdecode(done.stdout).split("\0"))


def _restore(path: Path) -> str:
    return f"git -C {shlex.quote(str(path.parent))} restore {shlex.quote(path.name)}"
