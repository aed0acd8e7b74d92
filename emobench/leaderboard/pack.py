"""Copies the files of entries' runs into their board, compressed, so that a clone of the board has them.

Each file is `BOARD/runs/<path>.xz` (`run_files.py`); a packed file is never changed. A data set's own texts are
not the board's to publish: of generated texts, those of the first prompts are copied without the texts around them,
losses of prompts as they are, and other samples not at all. `BOARD/runs/left-out.txt` lists the files that are left
out, also because they are large.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from emobench.core.files import write_whole
from emobench.core.reading import json_rows, read_text
from emobench.leaderboard.entry import Entries, Entry, File
from emobench.leaderboard.run_files import (
    PACKED,
    SHORTENED,
    free_place,
    is_recorded,
    packed_file,
    recorded_file,
)
from emobench.leaderboard.store import Leaderboard, claims, row_of

PROMPTS = 50
"""Prompts whose generated texts are kept."""
GENERATED = ("prompt_id", "sample", "continuation_text")
"""Fields that are kept of a line with a generated text."""
LOSSES = "prompt_nats"
"""A key of lines that have ids and numbers alone."""
LARGEST = 256 * 1024
"""Compressed bytes of the largest file that is packed."""
TOO_LARGE = f"more than {LARGEST // 1024} KiB, compressed"
NOT_OURS = "may hold texts of a data set"
LEFT_OUT = "left-out.txt"
_HINT = "Free space, and give the same command again."


@dataclass
class PackedFiles:
    """What `pack` did: the number of files that are new, of all, their bytes, and why others were left out."""

    new: int = 0
    files: int = 0
    bytes: int = 0
    left_out: dict[str, str] = field(default_factory=dict)


def pack(
    board: Leaderboard, runs: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> PackedFiles:
    """Pack the files of all entries that nothing supersedes.

    Raises DataError if a file is neither in `runs` nor on the board, or is not the recorded one; StorageError if
    the board cannot be written.
    """
    board.require_folder()
    entries = current(board.entries(superseded=True))
    named = {}
    for entry in entries:
        for file, sample in entry.files().items():
            named[file] = entry, sample
    done, left_out = PackedFiles(), left_out_files(board.root)
    for number, (file, (entry, sample)) in enumerate(named.items(), 1):
        target = packed_file(board.root, file, sample=sample)
        if target is None:
            inside = runs / file.path
            if file.path in left_out and not (inside.is_file() and is_recorded(inside, file, shortened=False)):
                done.left_out[file.path] = left_out[file.path]
                continue
            path = recorded_file(file, runs, entry)
            content = _published(path, file) if sample and path.suffix == ".jsonl" else path.read_bytes()
            if content is None:
                done.left_out[file.path] = NOT_OURS
                continue
            content = lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)
            if len(content) > LARGEST:
                done.left_out[file.path] = TOO_LARGE
                continue
            target = free_place(board.root, file)
            write_whole(target, content, "The packed file", _HINT)
            done.new += 1
        done.files += 1
        done.bytes += target.stat().st_size
        progress(number, len(named))
    list_left_out(board.root, dict(sorted(done.left_out.items())))
    return done


def current(entries: Entries) -> list[Entry]:
    """Return the entries that no other one supersedes: computing scores again replaces the files of the others."""
    rows = [row_of(entry, Path()) for entry in entries]
    superseded = {old.id for _, old, why in claims(rows) if not why}
    return [entry for entry in entries if entry.id not in superseded]


def left_out_files(board: Path) -> dict[str, str]:
    """Return the paths of files of runs that the board has not, and why."""
    path = board / PACKED / LEFT_OUT
    if not path.is_file():
        return {}
    reasons = {}
    for line in read_text(path).split("\n"):
        name, _, why = line.partition(": ")
        if name:
            reasons[name] = why
    return reasons


def _published(path: Path, file: File) -> bytes | None:
    """Return samples without texts of a data set: shortened ones begin with a line that names the whole file."""
    try:
        rows = [row for _, row in json_rows(path)]
    except ValueError:
        return None
    if all(LOSSES in row for row in rows):
        return path.read_bytes()
    if not all(row.keys() >= set(GENERATED) for row in rows):
        return None
    first = set()
    lines = [json.dumps({SHORTENED: file.sha256})]
    for row in rows:
        prompt = str(row["prompt_id"])
        if prompt in first or len(first) < PROMPTS:
            first.add(prompt)
            kept = {key: row[key] for key in GENERATED}
            lines.append(json.dumps(kept, ensure_ascii=False))
    return ("\n".join(lines) + "\n").encode()


def list_left_out(board: Path, left_out: Mapping[str, str]) -> None:
    """Write the list of the files that a board has not, and why; without any, there is none."""
    path = board / PACKED / LEFT_OUT
    if left_out:
        lines = [f"{name}: {why}\n" for name, why in left_out.items()]
        write_whole(path, "".join(lines), "The list of files left out", _HINT)
    else:
        path.unlink(missing_ok=True)
