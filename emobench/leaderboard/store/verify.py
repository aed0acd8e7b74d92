"""All that can be wrong with a board: its files, the files that they name, and what killed writes left.

Every file is read afresh, whatever the index says. The check against the published `entry.schema.json` is that of
`read_entry`, which refuses all that the JSON Schema refuses, and more (a test keeps it so): no other validator runs.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from json import JSONDecoder
from pathlib import Path
from typing import Any, Literal

from emobench.config import file_sha256
from emobench.errors import UserError
from emobench.leaderboard.schema.entry import Entry, File
from emobench.leaderboard.schema.labels import clean
from emobench.leaderboard.store.board import LARGEST, LONGEST, Leaderboard, file_of, parse, refuse_constant
from emobench.leaderboard.store.index import INDEX, Index
from emobench.leaderboard.store.row import row_of

SHOWN = 5
"""Absent files that a line names."""
_ENTRY = re.compile(r"[0-9a-f]{12}\.json")
_ALLOWED = re.compile(r"(README|LICENSE)(\.\w+)?|.*\.toml|\..*", re.DOTALL)
"""Files that may lie next to the folders of suites."""
Kind = Literal["entry", "place", "missing", "altered", "supersedes", "leftover", "index", "stray"]


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
    index, entries = Index(board.root), []
    for number, (file, status) in enumerate(files, 1):
        path = board.root / file
        entry = _read(path, findings)
        if entry is not None and file == file_of(entry):
            entries.append(entry)
            if index.get(file, status) not in (None, row_of(entry, path)):
                text = f"{board.root / INDEX}: tells other facts of {path} than the file. Remove it."
                findings.append(Finding.of("index", board.root / INDEX, text))
        elif entry is not None:
            findings.append(_misplaced(board, path, entry))
        progress(number, len(files))
    if runs is not None:
        findings += _in_runs(board, entries, runs)
    return len(entries), [*findings, *_strays(board), *_lost(board, entries), *_leftovers(board)]


def _in_runs(board: Leaderboard, entries: Sequence[Entry], runs: Path) -> Iterator[Finding]:
    """Check the files of entries that nothing supersedes: computing scores again replaces those of the others."""
    check, superseded = _RunFiles(runs), {entry.supersedes for entry in entries}
    for entry in entries:
        if entry.id not in superseded:
            yield from check(entry, board.path(entry))


def _read(path: Path, findings: list[Finding]) -> Entry | None:
    try:
        return parse(path.read_bytes(), str(path), _STRICT)
    except OSError as error:
        findings.append(
            Finding.of("entry", path, f"{path}: cannot be read ({error.strerror}): ls -l {shlex.quote(str(path))}")
        )
    except UserError as error:
        if _ENTRY.fullmatch(path.name):
            findings.append(Finding.of("entry", path, _advised(str(error))))
        else:
            findings.append(_stray(path))
    return None


def _advised(problem: str) -> str:
    """Return what is wrong with an entry's file, and what to do; a newer one is not to be removed."""
    if "Install a newer" in problem:
        return problem[:LONGEST]
    problem = problem.removesuffix(" Restore or remove it.").removesuffix(" Restore it.")
    return f"{problem[:LONGEST]} Restore the file from a copy, or remove it and record the entry again."


class _RunFiles:
    """Checks the files that entries name; those that several name are hashed once."""

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._digests: dict[str, str | None] = {}

    def __call__(self, entry: Entry, path: Path) -> Iterator[Finding]:
        named = [file for run in entry.runs for file in run.files()]
        missing = [file for file in named if self._digest(file) is None]
        if missing:
            shown = ", ".join(file.path for file in missing[:SHOWN])
            more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            text = (
                f"{path}: {len(missing)} of the {len(named)} files that it names are not in {self._runs}: "
                f"{shown}{more}. Give the folder of its runs with --runs DIR, or restore them."
            )
            yield Finding.of("missing", path, text)
        for file in named:
            if self._digest(file) not in (None, file.sha256):
                text = f"{self._runs / file.path}: altered since {path} was recorded. Restore it, or run again."
                yield Finding.of("altered", self._runs / file.path, text)

    def _digest(self, file: File) -> str | None:
        """Return a file's sha256, or None where there is no such file or it cannot be read."""
        if file.path not in self._digests:
            path = self._runs / file.path
            try:
                self._digests[file.path] = file_sha256(path) if path.is_file() else None
            except OSError:
                self._digests[file.path] = None
        return self._digests[file.path]


def _strays(board: Leaderboard) -> Iterator[Finding]:
    """Find what does not belong beside the folders of suites; an entry there belongs in one of them."""
    try:
        listed = sorted(board.root.iterdir())
    except OSError:  # a problem of the board already
        return
    for path in listed:
        if _ALLOWED.fullmatch(path.name) or not path.is_file():
            continue
        findings: list[Finding] = []
        readable = path.suffix == ".json" and path.stat().st_size <= LARGEST
        entry = _read(path, findings) if readable else None
        if entry is not None:
            yield _misplaced(board, path, entry)
        elif findings:
            yield from findings
        else:
            yield _stray(path)


def _stray(path: Path) -> Finding:
    return Finding.of("stray", path, f"{path}: is no entry; move it elsewhere.")


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


def _leftovers(board: Leaderboard) -> Iterator[Finding]:
    for path in sorted([*board.root.glob(".*.part"), *board.root.glob("*/.*.part")]):
        text = f"{path}: left by a write that was killed. Unless something is being recorded now, remove it: rm "
        yield Finding.of("leftover", path, text + shlex.quote(str(path)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands there twice: a person reads the first, and JSON takes the last."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} stands there twice")
        found[key] = value
    return found


_STRICT = JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=_once)
