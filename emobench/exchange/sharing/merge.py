"""What one board has and another has not: entries, and the packed files of their runs. Nothing is ever replaced."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from emobench.core.errors import DataError, EmobenchError
from emobench.core.files import write_whole
from emobench.leaderboard.entry import Entry, File
from emobench.leaderboard.labels import clean
from emobench.leaderboard.pack import LEFT_OUT, left_out_files, list_left_out
from emobench.leaderboard.run_files import PACKED, free_place, packed_file
from emobench.leaderboard.store import Leaderboard, file_of, read_file

_HINT = "Free space, and give the same command again."


@dataclass
class Added:
    """What a merge wrote: the names of files, and how many entries are new and were there."""

    names: list[str] = field(default_factory=list)
    entries: int = 0
    there: int = 0


def merge(source: Path, target: Path, where: str) -> Added:
    """Add to a board what another one has; both are whole (`store/verify.py`). Stopped anywhere, it can be repeated.

    Entries are written after the files that they name. Raises DataError, before anything is written, where `target`
    (`where` in the message) has an entry of one of their ids with other content; StorageError where it cannot be
    written.
    """
    entries = Leaderboard(source).entries(superseded=True)
    new = [entry for entry in entries if not _is_there(entry, target, where)]
    added = Added(entries=len(new), there=len(entries) - len(new))
    _add_files(entries, source, target, added)
    for entry in new:
        _copy(source / file_of(entry), target, file_of(entry), added)
    return added


def _is_there(entry: Entry, target: Path, where: str) -> bool:
    if not (target / file_of(entry)).exists():
        return False
    try:
        same = read_file(target, file_of(entry)) == entry
    except (EmobenchError, OSError):
        same = False
    if not same:
        raise DataError(
            f"{where}: {file_of(entry)} has other content than the entry {entry.id}, and nothing was written. Restore "
            "the file there, or remove it."
        )
    return True


def _add_files(entries: list[Entry], source: Path, target: Path, added: Added) -> None:
    reasons, left_out = left_out_files(source), left_out_files(target)
    missing = {}
    for file, sample in _named(entries).items():
        if packed_file(target, file, sample=sample) is not None:
            continue
        packed = packed_file(source, file, sample=sample)
        if packed is not None:  # of what was superseded, there may be another one, or none
            _copy(packed, target, free_place(target, file).relative_to(target).as_posix(), added)
        elif file.path in reasons:
            missing[file.path] = left_out.get(file.path, clean(reasons[file.path]))
    if missing.keys() - left_out.keys():
        list_left_out(target, {**left_out, **missing})  # in this order: see `digests.listed_content`
        added.names.append(f"{PACKED}/{LEFT_OUT}")


def _named(entries: list[Entry]) -> dict[File, bool]:
    """Return the files of runs, and whether each is one of samples."""
    return {file: file in run.samples for entry in entries for run in entry.runs for file in run.files()}


def _copy(path: Path, target: Path, name: str, added: Added) -> None:
    write_whole(target / name, path.read_bytes(), name, _HINT)
    added.names.append(name)
