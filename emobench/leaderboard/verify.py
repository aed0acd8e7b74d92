"""All that can be wrong with a board: its files, and the files that they name.

The check against the published `entry.schema.json` is that of `read_entry`, which refuses all that the JSON Schema
refuses, and more (a test keeps it so): no other validator runs.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from emobench.core.errors import DataError, UserError
from emobench.leaderboard.entry import Entries, Entry, File
from emobench.leaderboard.labels import clean
from emobench.leaderboard.pack import current, left_out_files
from emobench.leaderboard.run_files import find_file, is_recorded, packed_path
from emobench.leaderboard.store import LONGEST, Leaderboard, claims, file_of, parse, row_of

SHOWN = 5
"""Absent files that a line names."""
_ENTRY = re.compile(r"[0-9a-f]{12}\.json")
ALLOWED = re.compile(r"(README|LICENSE)(\.\w+)?|digests\.txt(\.sig)?|.*\.toml|\..*", re.DOTALL)
"""Files that may lie next to the folders of suites."""
STRAY = "is not an entry in the folder of its suite; move it elsewhere."
Kind = Literal["entry", "place", "missing", "altered", "supersedes", "stray"]


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a file, in a line with the next command to type."""

    kind: Kind
    path: str
    text: str


class Findings(list[Finding]):
    """Collects findings, of untrusted text."""

    def add(self, kind: Kind, path: Path, text: str) -> None:
        self.append(Finding(kind, clean(str(path)), clean(f"{path}: {text}")))


def verify(
    board: Leaderboard, runs: Path | None, progress: Callable[[int, int], None] = lambda done, total: None
) -> tuple[int, list[Finding]]:
    """Return how many entries a board has, and all that is wrong.

    With a folder of runs, the files there that entries name are hashed, too, of those that no other supersedes. Raises
    DataError if there is no board.
    """
    board.require_folder()
    board.problems = []
    files = list(board.files())
    findings = Findings(Finding("entry", text.partition(": ")[0], text) for text in board.problems)
    entries = []
    for number, file in enumerate(files, 1):
        _check_entry(board, file, entries, findings)
        progress(number, len(files))
    if runs is not None:
        _check_runs(board, entries, runs, findings)
    for path in sorted(filter(Path.is_file, board.root.glob("*"))):
        if not ALLOWED.fullmatch(path.name):
            findings.add("stray", path, STRAY)
    ids = {entry.id for entry in entries}
    for entry in entries:
        if entry.supersedes is not None and entry.supersedes not in ids:
            path = board.path(entry)
            advice = f"Copy it from a board that has it to {path.with_name(f'{entry.supersedes}.json')}"
            findings.add("supersedes", path, f"supersedes {entry.supersedes}, which is not on this board. {advice}")
    for new, old, why in claims([row_of(entry, board.path(entry)) for entry in entries]):
        if why:
            text = f"supersedes {old.id}, but {why}; so {old.id} stays. Remove this file, or record again."
            findings.add("supersedes", new.path, text)
    return len(entries), findings


def _check_entry(board: Leaderboard, file: str, entries: list[Entry], findings: Findings) -> None:
    """Add the entry of a file to `entries`, or the problem of the file to `findings`."""
    path = board.root / file
    try:
        entry = parse(path.read_bytes(), str(path))
    except OSError as error:
        findings.add("entry", path, f"cannot be read ({error.strerror}): ls -l {shlex.quote(str(path))}")
    except UserError as error:
        if not _ENTRY.fullmatch(path.name):
            findings.add("stray", path, STRAY)
            return
        text = str(error).removeprefix(f"{path}: ").removesuffix(" Restore or remove it.").removesuffix(" Restore it.")
        if "Install a newer" not in text:  # a newer one is not to be removed
            text = f"{text[:LONGEST]} Restore the file from a copy, or remove it and record the entry again."
        findings.add("entry", path, text[: 2 * LONGEST])
    else:
        if file == file_of(entry):
            entries.append(entry)
            return
        target = board.path(entry)
        folder, old, new = (shlex.quote(str(name)) for name in (target.parent, path, target))
        text = f"holds the entry that belongs in {target}: mkdir -p {folder} && mv -n {old} {new}"
        findings.add("place", path, text)


def _check_runs(board: Leaderboard, entries: Entries, runs: Path, findings: Findings) -> None:
    """Check the files of entries that nothing supersedes: computing scores again replaces those of the others."""
    left_out = left_out_files(board.root)

    @functools.cache  # several entries may name one file
    def problem(file: File, sample: bool) -> Kind | None:
        kind: Kind = "altered"
        try:
            path = find_file(file, runs, [board.root])
            if path is None:
                kind = "missing"
            elif is_recorded(path, file, shortened=sample):
                return None
            elif path == runs / file.path:
                return kind
        except (DataError, OSError):
            pass
        return None if file.path in left_out else kind

    for entry in current(entries):
        path = board.path(entry)
        problems = {file: problem(file, sample) for file, sample in entry.files().items()}
        missing = [file.path for file, kind in problems.items() if kind == "missing"]
        if missing:
            more = f", and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
            text = (
                f"{len(missing)} of the {len(problems)} files that it names are not in {runs}: "
                f"{', '.join(missing[:SHOWN])}{more}. Give the folder of its runs with --runs DIR, or restore them."
            )
            findings.add("missing", path, text)
        for file, kind in problems.items():
            if kind == "altered":
                inside = runs / file.path
                if not inside.exists():
                    inside = packed_path(board.root, file.path)
                findings.add("altered", inside, f"altered since {path} was recorded. Restore it, or run again.")
