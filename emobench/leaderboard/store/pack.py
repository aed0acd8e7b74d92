"""Copies the files of entries' runs into their board, compressed, so that a clone of the board has them.

Each file is `BOARD/runs/<path>.xz`; what is there is never changed. Samples are shortened to the generated texts of the
first prompts, because a data set's own texts are not the board's to publish. A file that is large even so is left out,
and listed in `BOARD/runs/left-out.txt`.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from emobench.errors import DataError
from emobench.files import write_whole
from emobench.leaderboard.schema.entry import Entry, File
from emobench.leaderboard.schema.run_files import PACKED, SHORTENED, packed_path, recorded_file
from emobench.leaderboard.store.board import Leaderboard
from emobench.reading import read_text

PROMPTS = 50
"""Prompts whose generated texts are kept."""
KEPT = ("prompt_id", "sample", "continuation_text")
LARGEST = 256 * 1024
"""Compressed bytes of the largest file that is packed."""
LEFT_OUT = "left-out.txt"
_HINT = "Free space, and give the same command again."


@dataclass
class PackedFiles:
    """What `pack` did: the number of files that are new, of all, their bytes, and the paths that were left out."""

    new: int = 0
    files: int = 0
    bytes: int = 0
    left_out: list[str] = field(default_factory=list)


def pack(
    board: Leaderboard, runs: Path, progress: Callable[[int, int], None] = lambda done, total: None
) -> PackedFiles:
    """Pack the files of all entries that nothing supersedes.

    Raises DataError where a file is neither in `runs` nor on the board, or is not the recorded one; StorageError where
    the board cannot be written.
    """
    board.require_folder()
    entries = board.entries()
    named = {file: (entry, file in run.samples) for entry in entries for run in entry.runs for file in run.files()}
    done, left_out = PackedFiles(), left_out_files(board.root)
    for number, (file, (entry, sample)) in enumerate(named.items(), 1):
        target = packed_path(board.root, file.path)
        if not target.is_file():
            if file.path in left_out and not (runs / file.path).is_file():
                done.left_out.append(file.path)
                continue
            content = _content(recorded_file(file, runs, entry), file, sample)
            if len(content) > LARGEST:
                done.left_out.append(file.path)
                continue
            write_whole(target, content, "The packed file", _HINT)
            done.new += 1
        done.files += 1
        done.bytes += target.stat().st_size
        progress(number, len(named))
    _list_left_out(board.root, done.left_out)
    return done


def current(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield the entries that no other one supersedes: computing scores again replaces the files of the others."""
    superseded = {entry.supersedes for entry in entries}
    return (entry for entry in entries if entry.id not in superseded)


def left_out_files(board: Path) -> set[str]:
    """Return the paths of files of runs that were too large for the board."""
    path = board / PACKED / LEFT_OUT
    return set(read_text(path).splitlines()) if path.is_file() else set()


def unnamed_files(board: Path, entries: Sequence[Entry]) -> Iterator[Path]:
    """Yield the packed files that no entry names."""
    named = {packed_path(board, file.path) for entry in entries for run in entry.runs for file in run.files()}
    for path in sorted((board / PACKED).rglob("*")):
        if path.is_file() and path not in named and path.name != LEFT_OUT and not path.name.startswith("."):
            yield path


def _content(path: Path, file: File, sample: bool) -> bytes:
    content = _shortened(path, file) if sample and path.suffix == ".jsonl" else path.read_bytes()
    return lzma.compress(content, preset=9 | lzma.PRESET_EXTREME)


def _shortened(path: Path, file: File) -> bytes:
    """Return the generated texts of the first prompts, as JSON Lines after a line that names the whole file."""
    lines, prompts = [json.dumps({SHORTENED: file.sha256})], set()
    with path.open(encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            try:
                row = {key: json.loads(line)[key] for key in KEPT}
            except (KeyError, TypeError, ValueError):
                raise DataError(f"{path}:{number}: expected JSON with {', '.join(KEPT)}. Run again.") from None
            prompts.add(row["prompt_id"])
            if len(prompts) > PROMPTS:
                break
            lines.append(json.dumps(row, ensure_ascii=False))
    return "".join(f"{line}\n" for line in lines).encode()


def _list_left_out(board: Path, paths: Sequence[str]) -> None:
    path = board / PACKED / LEFT_OUT
    if paths:
        write_whole(path, "".join(f"{name}\n" for name in sorted(paths)), "The list of files left out", _HINT)
    else:
        path.unlink(missing_ok=True)
