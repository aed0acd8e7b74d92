"""Push a board to a shared one, and pull from it. All of it is verified before anything is written."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from emobench.core.errors import ConfigError, DataError, EmobenchError
from emobench.core.files import write_whole
from emobench.exchange.sharing.digests import (
    DIGESTS,
    LARGEST_SIGNATURE,
    LONGEST,
    SIGNATURE,
    check_signature,
    largest,
    list_digests,
    listed_content,
    read_digests,
    require_shareable,
    sign,
)
from emobench.exchange.sharing.places import FolderCopy, FolderPlace, HubPlace
from emobench.leaderboard.entry import Entry, File
from emobench.leaderboard.labels import clean
from emobench.leaderboard.pack import LEFT_OUT, left_out_files, list_left_out, pack
from emobench.leaderboard.run_files import PACKED, free_place, packed_file
from emobench.leaderboard.store import Leaderboard, file_of, parse, read_file
from emobench.leaderboard.verify import ALLOWED, verify

_HINT = "Free space, and give the same command again."
ATTEMPTS = 50
"""Pushes before giving up, where others push at the same time."""
LOOKS = 5
"""Readings of a folder in which somebody may be writing."""
PAUSE = 0.2
"""Seconds between them."""
HARMLESS = ("leftover", "stray")
"""Findings on files of the user's own board that are not shared."""
_SUITE = re.compile(r".+-v\d+")


@dataclass(frozen=True)
class Shared:
    """How many entries are new where they were taken to, were there already, and how many files were written."""

    entries: int
    there: int
    files: int
    hidden: tuple[str, ...] = ()
    """The ids of one's own entries that new ones of the same runs supersede or contain."""


def push(
    board: Leaderboard,
    place: FolderPlace | HubPlace,
    runs: Path,
    key: Path | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Shared:
    """Add all entries of a board to a shared one, with the files of their runs; sign the list of digests with `key`.

    Raises DataError where either board is not whole or a file has other content, ConfigError where the place is no
    shared board or another push is always first, StorageError where it cannot be written.
    """
    board.require_folder()
    pack(board, runs)
    _require_whole(board.root, "", HARMLESS)
    for attempt in range(ATTEMPTS):
        if attempt:
            note(f"{place.name}: somebody else has just pushed; once more")
            time.sleep(random.uniform(0, PAUSE * min(attempt, 5)))
        with place.opened(writing=True) as copy, _scratch() as folder:
            _require_board(copy, place)
            names = _fetch(copy, folder, place, None)
            signed = copy.read(SIGNATURE, LARGEST_SIGNATURE) is not None
            added = merge(board.root, folder, place.name)
            if not added.names and key is None:
                return _shared(added)
            if signed and key is None:
                raise ConfigError(f"{place.name} is signed: give your key, --sign-key FILE. Nothing was written.")
            _require_whole(folder, place.name)
            require_shareable(folder, added.names)
            _require_same(copy, folder, added, place)
            if _publish(copy, folder, {*names, *added.names}, added, key):
                return _shared(added)
    raise ConfigError(f"{place.name}: {ATTEMPTS} times somebody else was first. Nothing was written. Push again later.")


def pull(board: Leaderboard, place: FolderPlace | HubPlace, allowed: Path | None = None) -> Shared:
    """Add all entries of a shared board to one's own, with the files of their runs.

    With `allowed`, a file of allowed signers as of ssh-keygen(1), a list that none of them signed is refused. Raises
    what `push` raises.
    """
    with place.opened(writing=False) as copy, _scratch() as folder:
        if copy.read(DIGESTS, LONGEST) is None:
            raise DataError(f"{place.name} holds no shared board. Begin it: emobench leaderboard push {place.name}")
        _fetch(copy, folder, place, allowed)
        _require_whole(folder, place.name)
        before = {row.id for row in board.rows()}
        done = _shared(merge(folder, board.root, str(board.root)))
        hidden = before - {row.id for row in board.rows()}
        return replace(done, hidden=tuple(sorted(hidden)))


def _require_same(copy: FolderCopy, folder: Path, added: Added, place: FolderPlace | HubPlace) -> None:
    """Refuse to replace an entry's file that no list has, unless it holds the same entry: a push was stopped."""
    for name in (name for name in added.names if name.endswith(".json")):
        there = copy.read(name, largest(name) or 0)
        ours = (folder / name).read_bytes()
        if there not in (None, ours) and parse(there, f"{place.name}: {name}") != parse(ours, name):
            raise DataError(f"{place.name}: {name} has other content. Nothing was written. Restore or remove it there.")


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="emobench.") as folder:
        yield Path(folder) / "board"


def _shared(added: Added) -> Shared:
    return Shared(added.entries, added.there, len(added.names) - added.entries)


def _fetch(copy: FolderCopy, folder: Path, place: FolderPlace | HubPlace, allowed: Path | None) -> set[str]:
    """Copy the listed files to a new folder, and return their names."""
    folder.mkdir()
    for _ in range(0 if copy.fixed else LOOKS - 1):
        with suppress(DataError):  # somebody may be writing
            return _fetch_once(copy, folder, place, allowed)
        time.sleep(PAUSE)
    return _fetch_once(copy, folder, place, allowed)


def _fetch_once(copy: FolderCopy, folder: Path, place: FolderPlace | HubPlace, allowed: Path | None) -> set[str]:
    listing = copy.read(DIGESTS, LONGEST) or b""
    if allowed is not None:
        check_signature(listing, copy.read(SIGNATURE, LARGEST_SIGNATURE), allowed, place.name)
    digests = read_digests(listing, place.name)
    for name, sha256 in digests.items():
        content = copy.read(name, largest(name) or 0)
        if content is None:
            raise DataError(f"{place.name}: {name} is in {DIGESTS}, and is not there. Nothing was written. Restore it.")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(listed_content(content, sha256, name, place.name))
    return set(digests)


def _publish(copy: FolderCopy, folder: Path, names: set[str], added: Added, key: Path | None) -> bool:
    """Write the new files; the list of digests is last, so that others see nothing of them until then."""
    (folder / DIGESTS).write_text(list_digests(folder, names), encoding="utf-8")
    last = [DIGESTS]
    if key is not None:
        sign(folder / DIGESTS, key)
        last = [SIGNATURE, DIGESTS]
    last = [name for name in last if copy.read(name, LONGEST) != (folder / name).read_bytes()]
    if not added.names and not last:  # it was signed by this key
        return True
    count = "1 entry" if added.entries == 1 else f"{added.entries:,} entries"
    return copy.publish({name: folder / name for name in [*added.names, *last]}, f"Leaderboard: {count}")


def _require_board(copy: FolderCopy, place: FolderPlace | HubPlace) -> None:
    """Refuse to push into a place that is no shared board, such as a folder of code."""
    if copy.read(DIGESTS, LONGEST) is not None:
        return
    others = [
        name for name in copy.names() if name != PACKED and not ALLOWED.fullmatch(name) and not _SUITE.match(name)
    ]
    if others:
        raise ConfigError(
            f"{place.name} holds {others[0]}, and no {DIGESTS}: it is no shared board. Give an empty folder or "
            "data set, or the clone of an empty git repository."
        )


def _require_whole(root: Path, where: str, harmless: tuple[str, ...] = ()) -> None:
    """Raise DataError for the first thing that is wrong with a board; `where` is its name if `root` is a copy."""
    _, findings = verify(Leaderboard(root), root / "none")
    wrong = [finding for finding in findings if finding.kind not in harmless]
    if not wrong:
        return
    more = f" And {len(wrong) - 1:,} more." if len(wrong) > 1 else ""
    text = wrong[0].text
    if where:
        text = f"{where}: {text.replace(f'{root}/', '')}"
    raise DataError(f"{text}{more} Nothing was written.")


# What one board has and another has not. Nothing is ever replaced.


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
