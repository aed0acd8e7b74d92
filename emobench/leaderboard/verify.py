"""All that can be wrong with a board: its files, the files that they name, and what killed writes left.

The check against the published `entry.schema.json` is that of `read_entry`, which refuses all that the JSON Schema
refuses, and more (a test keeps it so): no other validator runs.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emobench.core.errors import DataError, UserError
from emobench.leaderboard.entry import Entry, File
from emobench.leaderboard.labels import clean
from emobench.leaderboard.pack import current, left_out_files, unnamed_files
from emobench.leaderboard.run_files import PACKED, digest, find_file, is_recorded, packed_path
from emobench.leaderboard.store import LONGEST, Leaderboard, claims, file_of, parse, row_of

LEFT = (".*.part", "*/.*.part", f"{PACKED}/*/**/.*.part")
"""Where a write that was killed leaves its file."""
SHOWN = 5
"""Absent files that a line names."""
_ENTRY = re.compile(r"[0-9a-f]{12}\.json")
ALLOWED = re.compile(r"(README|LICENSE)(\.\w+)?|digests\.txt(\.sig)?|.*\.toml|\..*", re.DOTALL)
"""Files that may lie next to the folders of suites."""
Kind = Literal["entry", "place", "missing", "altered", "supersedes", "leftover", "stray"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a file, in a line that says what, and what to type next."""

    kind: Kind
    path: str
    text: str

    @classmethod
    def of(cls, kind: Kind, path: Path, text: str) -> Finding:
        """Make one of untrusted text."""
        return cls(kind, clean(str(path)), clean(text))


def verify(
    board: Leaderboard, runs: Path | None, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[int, list[Finding]]:
    """Return how many entries a board has, and all that is wrong.

    With a folder of runs, the files there that entries name are hashed, too, of those that no other supersedes. Raises
    DataError where there is no board.
    """
    board.require_folder()
    board.problems = []
    files = list(board.files())
    findings = [Finding("entry", text.partition(": ")[0], text) for text in board.problems]
    entries = []
    for number, file in enumerate(files, 1):
        path = board.root / file
        read = _read(path)
        if isinstance(read, Finding):
            findings.append(read)
        elif file != file_of(read):
            findings.append(_misplaced(board, path, read))
        else:
            entries.append(read)
        progress(number, len(files))
    if runs is not None:
        findings += _in_runs(board, entries, runs)
    findings += [*_strays(board, entries), *_lost(board, entries), *_leftovers(board)]
    return len(entries), findings


def _read(path: Path) -> Entry | Finding:
    try:
        return parse(path.read_bytes(), str(path))
    except OSError as error:
        text = f"{path}: cannot be read ({error.strerror}): ls -l {shlex.quote(str(path))}"
        return Finding.of("entry", path, text)
    except UserError as error:
        return Finding.of("entry", path, _advised(str(error))) if _ENTRY.fullmatch(path.name) else _stray(path)


def _advised(problem: str) -> str:
    """Return the problem of an entry's file, and what to do; a newer one is not to be removed."""
    if "Install a newer" in problem:
        return problem[:LONGEST]
    problem = problem.removesuffix(" Restore or remove it.").removesuffix(" Restore it.")
    return f"{problem[:LONGEST]} Restore the file from a copy, or remove it and record the entry again."


def _in_runs(board: Leaderboard, entries: Sequence[Entry], runs: Path) -> Iterator[Finding]:
    """Check the files of entries that nothing supersedes: computing scores again replaces those of the others."""

    left_out = left_out_files(board.root)

    @functools.cache  # several entries may name one file
    def state(file: File, sample: bool) -> str:
        path, same = None, False
        try:
            path = find_file(file, runs, [board.root])
            if path is None:
                return "left out" if file.path in left_out else "missing"
            same = is_recorded(path, file) if sample else digest(path) == file.sha256
        except (DataError, OSError):
            path = None
        if same:
            return "whole"
        another = file.path in left_out and path != runs / file.path  # has the name of the one that is left out
        return "left out" if another else "altered"

    for entry in current(entries):
        path = board.path(entry)
        states = {}
        for run in entry.runs:
            for file in run.files():
                states[file] = state(file, file in run.samples)
        missing = [file.path for file, of_file in states.items() if of_file == "missing"]
        if missing:
            more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            text = (
                f"{path}: {len(missing)} of the {len(states)} files that it names are not in {runs}: "
                f"{', '.join(missing[:SHOWN])}{more}. Give the folder of its runs with --runs DIR, or restore them."
            )
            yield Finding.of("missing", path, text)
        for file, of_file in states.items():
            if of_file == "altered":
                inside = runs / file.path
                if not inside.exists():
                    inside = packed_path(board.root, file.path)
                text = f"{inside}: altered since {path} was recorded. Restore it, or run again."
                yield Finding.of("altered", inside, text)


def _strays(board: Leaderboard, entries: Sequence[Entry]) -> Iterator[Finding]:
    """Find what does not belong next to the folders of suites."""
    for path in sorted(board.root.glob("*")):
        if path.is_file() and not ALLOWED.fullmatch(path.name):
            yield _stray(path)
    for path in unnamed_files(board.root, entries):
        text = f"{path}: no entry of this board names it. Remove it: rm {shlex.quote(str(path))}"
        yield Finding.of("stray", path, text)


def _stray(path: Path) -> Finding:
    return Finding.of("stray", path, f"{path}: is not an entry in the folder of its suite; move it elsewhere.")


def _misplaced(board: Leaderboard, path: Path, entry: Entry) -> Finding:
    target = board.path(entry)
    move = f"mkdir -p {shlex.quote(str(target.parent))} && mv -n {shlex.quote(str(path))} {shlex.quote(str(target))}"
    return Finding.of("place", path, f"{path}: holds the entry that belongs in {target}: {move}")


def _lost(board: Leaderboard, entries: Sequence[Entry]) -> Iterator[Finding]:
    ids = {entry.id for entry in entries}
    for entry in entries:
        if entry.supersedes is not None and entry.supersedes not in ids:
            path = board.path(entry)
            advice = f"Copy it from a board that has it to {path.with_name(f'{entry.supersedes}.json')}"
            text = f"{path}: supersedes {entry.supersedes}, which is not on this board. {advice}"
            yield Finding.of("supersedes", path, text)
    for new, old, why in claims([row_of(entry, board.path(entry)) for entry in entries]):
        if why:
            text = f"{new.path}: supersedes {old.id}, but {why}; so {old.id} stays. Remove this file, or record again."
            yield Finding.of("supersedes", new.path, text)


def _leftovers(board: Leaderboard) -> Iterator[Finding]:
    parts: list[Path] = []
    for where in LEFT:
        parts += board.root.glob(where)
    for path in sorted(parts):
        text = f"{path}: left by a write that was killed. Unless something is being recorded now, remove it: rm "
        yield Finding.of("leftover", path, text + shlex.quote(str(path)))
