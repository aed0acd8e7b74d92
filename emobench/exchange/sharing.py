"""Push a board to a shared one, and pull from it: a folder, or a data set of the Hugging Face hub.

`digests.txt` lists all files of a shared board with their digests, in the format of sha256sum. It is written last: a
file that is not in it was left by a push that was stopped, and is not read. So a board is always as one push or another
left it. `sha256sum -c digests.txt` checks a copy without emobench.

All of a board is verified before anything is written, and nothing is ever replaced.
"""

from __future__ import annotations

import errno
import hashlib
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from emobench.core.errors import ConfigError, DataError, EmobenchError
from emobench.core.files import write_whole
from emobench.core.locks import locked
from emobench.core.reading import expand_home, is_folder, read_bytes
from emobench.core.settings import file_sha256
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import clean
from emobench.leaderboard.pack import LARGEST as LARGEST_PACKED
from emobench.leaderboard.pack import LEFT_OUT, left_out_files, list_left_out, pack
from emobench.leaderboard.run_files import PACKED, SUFFIX, free_place, packed_file
from emobench.leaderboard.store import LARGEST as LARGEST_ENTRY
from emobench.leaderboard.store import Leaderboard, file_of, parse
from emobench.leaderboard.verify import ALLOWED, verify
from emobench.models.hub import Repo

DIGESTS = "digests.txt"
LONGEST = 64 * 2**20
"""Bytes of the largest list of digests."""
LARGEST = 2**30
"""Bytes of the largest board that is downloaded."""
LOCK = ".push.lock"
BRANCH = "main"
FILES = [DIGESTS, "*-v*/*.json", f"{PACKED}/*"]
"""Patterns of the files that are downloaded."""
ATTEMPTS = 50
"""Pushes before giving up, where others push at the same time."""
LOOKS = 5
"""Readings of a folder in which somebody may be writing."""
PAUSE = 0.2
"""Seconds between them."""
HARMLESS = "stray"
"""The kind of findings on files of the user's own board that are not shared."""
NOTHING = "Nothing was written."
_HINT = "Free space, and give the same command again."
_LIST_LEFT_OUT = f"{PACKED}/{LEFT_OUT}"
_PART = r"[^./\\\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]{0,199}"
_NAMES = {
    re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}-v[1-9][0-9]{0,8}/[0-9a-f]{12}\.json"): LARGEST_ENTRY,
    re.compile(rf"{PACKED}/(?:{_PART}/){{1,8}}{_PART}{re.escape(SUFFIX)}"): LARGEST_PACKED,
    re.compile(re.escape(_LIST_LEFT_OUT)): LARGEST_ENTRY,
}
"""Names of the files of a shared board, within its folder, with the bytes of the largest."""
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_SUITE = re.compile(r".+-v\d+")
_CHANGED = (409, 412)
"""HTTP: conflict, and precondition failed."""
_HUB = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)")
_SECRET = re.compile(r"(?<=://)[^/@:]*:[^/@]*@")


@dataclass
class Shared:
    """How many entries are new where they were taken to, and were there already, and the names of written files."""

    entries: int = 0
    there: int = 0
    names: list[str] = field(default_factory=list)
    hidden: tuple[str, ...] = ()
    """The ids of one's own entries that new ones of the same runs supersede or contain."""

    @property
    def files(self) -> int:
        """The number of files of runs."""
        return len(self.names) - self.entries


def push(board: Leaderboard, place: Folder, runs: Path, note: Callable[[str], None] = lambda _: None) -> Shared:
    """Add all entries of a board to a shared one, with the files of their runs.

    Raises DataError where either board is not whole or a file has other content, ConfigError where the place is no
    shared board or another push is always first, StorageError where it cannot be written.
    """
    board.require_folder()
    pack(board, runs)
    _require_whole(board.root, "")
    for attempt in range(ATTEMPTS):
        if attempt:
            note(f"{place.name}: another push came first; trying again")
            time.sleep(random.uniform(0, PAUSE * min(attempt, 5)))
        with place.opened(writing=True), _scratch() as folder:
            _require_board(place)
            names = _fetch(place, folder)
            added = merge(board.root, folder, place.name)
            if not added.names:
                return added
            _require_whole(folder, place.name)
            _require_same(place, folder, added)
            if _publish(place, folder, {*names, *added.names}, added):
                return added
    raise ConfigError(f"{place.name}: other pushes came first {ATTEMPTS} times. {NOTHING} Push again later.")


def pull(board: Leaderboard, place: Folder) -> Shared:
    """Add all entries of a shared board to one's own, with the files of their runs. Raises the errors of `push`."""
    with place.opened(writing=False), _scratch() as folder:
        if place.read(DIGESTS, LONGEST) is None:
            raise DataError(f"{place.name} has no shared board. Start one: emobench leaderboard push {place.name}")
        _fetch(place, folder)
        _require_whole(folder, place.name)
        before = {row.id for row in board.rows()}
        added = merge(folder, board.root, str(board.root))
        return replace(added, hidden=tuple(sorted(before - {row.id for row in board.rows()})))


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="emobench.") as folder:
        yield Path(folder) / "board"


def _fetch(place: Folder, folder: Path) -> set[str]:
    """Copy the listed files to a new folder, and return their names."""
    folder.mkdir()
    for _ in range(0 if place.fixed else LOOKS - 1):
        with suppress(DataError):  # somebody may be writing
            return _fetch_once(place, folder)
        time.sleep(PAUSE)
    return _fetch_once(place, folder)


def _fetch_once(place: Folder, folder: Path) -> set[str]:
    digests = read_digests(place.read(DIGESTS, LONGEST) or b"", place.name)
    for name, sha256 in digests.items():
        content = place.read(name, largest(name) or 0)
        if content is None:
            raise DataError(f"{place.name}: {name} is in {DIGESTS}, but the file is missing. {NOTHING} Restore it.")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(listed_content(content, sha256, name, place.name))
    return set(digests)


def _require_same(place: Folder, folder: Path, added: Shared) -> None:
    """Refuse to replace an entry's file that no list has, unless it holds the same entry: a push was stopped."""
    for name in added.names:
        if not name.endswith(".json"):
            continue
        there = place.read(name, largest(name) or 0)
        ours = (folder / name).read_bytes()
        if there not in (None, ours) and parse(there, f"{place.name}: {name}") != parse(ours, name):
            raise DataError(f"{place.name}: {name} has other content. {NOTHING} Restore or remove it there.")


def _publish(place: Folder, folder: Path, names: set[str], added: Shared) -> bool:
    """Write the new files; the list of digests is last, so that others see nothing of them until then."""
    lines = []
    for name in sorted(names):
        lines.append(f"{file_sha256(folder / name)}  {name}\n")
    (folder / DIGESTS).write_text("".join(lines), encoding="utf-8")
    files = {name: folder / name for name in [*added.names, DIGESTS]}
    return place.publish(files, f"Leaderboard: {added.entries:,} new entries")


def _require_board(place: Folder) -> None:
    """Refuse to push into a place that is no shared board, such as a folder of code."""
    if place.read(DIGESTS, LONGEST) is not None:
        return
    for name in place.names():
        if name != PACKED and not ALLOWED.fullmatch(name) and not _SUITE.match(name):
            raise ConfigError(
                f"{place.name} holds {name}, and no {DIGESTS}: it is not a shared board. Give an empty folder or data "
                "set, or the clone of an empty git repository."
            )


def _require_whole(root: Path, where: str) -> None:
    """Raise DataError for the first thing that is wrong with a board; `where` is its name, "" for the user's own."""
    _, findings = verify(Leaderboard(root), root / "none")
    for finding in findings:
        if not where and finding.kind == HARMLESS:
            continue
        text = f"{where}: {finding.text.replace(f'{root}/', '')}" if where else finding.text
        raise DataError(f"{text} {NOTHING}")


def merge(source: Path, target: Path, where: str) -> Shared:
    """Add to a board what another one has; both are whole (`verify.py`). Stopped anywhere, it can be repeated.

    Entries are written after the files that they name. Raises DataError, before anything is written, where `target`
    (`where` in the message) has an entry of one of their ids with other content; StorageError where it cannot be
    written.
    """
    entries = Leaderboard(source).entries(superseded=True)
    new = [entry for entry in entries if not _is_there(entry, target, where)]
    added = Shared(len(new), len(entries) - len(new))
    _add_files(entries, source, target, added)
    for entry in new:
        _copy(source / file_of(entry), target, file_of(entry), added)
    return added


def _is_there(entry: Entry, target: Path, where: str) -> bool:
    if not (target / file_of(entry)).exists():
        return False
    with suppress(EmobenchError, OSError):
        if Leaderboard(target).read_file(file_of(entry)) == entry:
            return True
    raise DataError(f"{where}: {file_of(entry)} has other content than the entry. {NOTHING} Restore or remove it.")


def _add_files(entries: list[Entry], source: Path, target: Path, added: Shared) -> None:
    reasons = left_out_files(source)
    left_out = left_out_files(target)
    files = {}
    for entry in entries:
        for run in entry.runs:
            for file in run.files():
                files[file] = file in run.samples
    missing = {}
    for file, sample in files.items():
        if packed_file(target, file, sample=sample) is not None:
            continue
        packed = packed_file(source, file, sample=sample)
        if packed is not None:  # of what was superseded, there may be another one, or none
            _copy(packed, target, free_place(target, file).relative_to(target).as_posix(), added)
        elif file.path in reasons:
            missing[file.path] = left_out.get(file.path, clean(reasons[file.path]))
    if missing.keys() - left_out.keys():
        list_left_out(target, {**left_out, **missing})  # in this order: see `listed_content`
        added.names.append(_LIST_LEFT_OUT)


def _copy(path: Path, target: Path, name: str, added: Shared) -> None:
    content = path.read_bytes()
    most = largest(name)
    if most is None or len(content) > most:  # nobody could pull it
        why = "a name that no shared board has" if most is None else f"{len(content):,} bytes; the limit is {most:,}"
        raise DataError(f"{name} has {why}. {NOTHING} Leave its entry out of this board.")
    write_whole(target / name, content, name, _HINT)
    added.names.append(name)


# The list of digests


def largest(name: str) -> int | None:
    """Return the bytes that a file of this name may have; None for a name that no file of a shared board has."""
    for pattern, most in _NAMES.items():
        if pattern.fullmatch(name):
            return most
    return None


def read_digests(content: bytes, where: str) -> dict[str, str]:
    """Return the sha256 of each file by its name. Raises DataError for a list that no push wrote."""
    digests = {}
    text = content.decode(errors="replace").removesuffix("\n")
    for number, line in enumerate(text.split("\n") if content else (), 1):
        fields = _LINE.fullmatch(line)
        if fields is None or largest(fields[2]) is None or fields[2] in digests:
            raise DataError(
                f"{where}: line {number} of {DIGESTS} is {line!r:.120}; expected a sha256, two spaces, and the name of "
                f"a file of a board, each name once. {NOTHING} Restore the list there from an earlier state."
            )
        digests[fields[2]] = fields[1]
    return digests


def listed_content(content: bytes, sha256: str, name: str, where: str) -> bytes:
    """Return the content of a file that has the listed digest; raises DataError where it is another one.

    To the list of files that are left out, which alone is ever written again, lines are added at the end: those of a
    push that was stopped are not returned.
    """
    hashed = hashlib.sha256()
    size = 0
    for line in content.splitlines(keepends=True) if name == _LIST_LEFT_OUT else [content]:
        hashed.update(line)
        size += len(line)
        if hashed.hexdigest() == sha256:
            return content[:size]
    raise DataError(f"{where}: {name} is not the file that {DIGESTS} lists. {NOTHING} Restore it there.")


# The places of shared boards


def find_place(given: str) -> Folder:
    """Return the place that REPO means: a folder, or a data set of the hub. Raises ConfigError."""
    matched, name, path = _HUB.fullmatch(given), _SECRET.sub("", given), expand_home(given)
    if matched is not None:
        return Hub(given, matched[1])
    if not is_folder(path):
        raise ConfigError(
            f"REPO {name}: there is no such folder. Make it (mkdir -p), clone it if it is a git repository, or give a "
            "data set of the hub (hf://datasets/OWNER/NAME)."
        )
    return Folder(name, path)


class Folder:
    """A folder that all may write to. A push holds its lock. `name` is as the user gave it, without a password."""

    fixed = False
    """Nobody can change the files while it is open."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root

    @contextmanager
    def opened(self, *, writing: bool) -> Iterator[None]:
        """Open it. Raises a UserError where it is not there or may not be used."""
        if not is_folder(self.root):
            raise DataError(f"{self.name}: the folder is gone. Give another one.")
        if not os.access(self.root, os.R_OK | os.X_OK | (os.W_OK if writing else 0)):
            right = "write to" if writing else "read"
            raise DataError(f"{self.name}: {os.strerror(errno.EACCES)}: you may not {right} it. Ask who owns it.")
        self.fixed = writing
        if writing:
            with locked(self.root / LOCK):
                yield
        else:
            yield

    def names(self) -> list[str]:
        """Return the names of files and folders at its top."""
        return sorted(path.name for path in self.root.iterdir())

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file, None where it is not there. Raises DataError for a link, and for more than `most` bytes."""
        path = self.root / name
        if path.resolve() != self.root.resolve() / name:
            raise DataError(f"{self.name}: {name} is or lies behind a symbolic link. {NOTHING} Remove it.")
        try:
            content = read_bytes(path, most + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"{self.name}: {name} cannot be read ({error.strerror}). {NOTHING}") from None
        if len(content) > most:
            raise self._too_large(name, most)
        return content

    def publish(self, files: Mapping[str, Path], message: str) -> bool:
        """Write files in this order, each under a temporary name first; False where somebody else was first."""
        del message
        for name, path in files.items():
            write_whole(self.root / name, path.read_bytes(), name, "Free space there, and give the same push again.")
        return True

    def _too_large(self, name: str, most: int) -> DataError:
        return DataError(f"{self.name}: {name} has more than {most:,} bytes. {NOTHING} Remove it there.")


@contextmanager
def hub_errors(name: str, advice: str = "Check the name, `hf auth whoami`, and the network.") -> Iterator[None]:
    """Raise DataError for any error of the hub's client."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # the errors of the HTTP client have no public common class
        cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise DataError(f"{name}: the hub refused ({cause:.300}). {advice}") from None


class Hub(Folder):
    """A data set of the hub: while it is open, one commit of it in a folder."""

    fixed = True

    def __init__(self, name: str, repo: str) -> None:
        self.name, self.repo = name, repo
        self.commit = ""
        self.sizes: dict[str, int] = {}

    @contextmanager
    def opened(self, *, writing: bool) -> Iterator[None]:
        del writing
        import huggingface_hub
        from huggingface_hub.hf_api import RepoFile

        self.commit = Repo(self.repo, "dataset").resolve(BRANCH)
        with tempfile.TemporaryDirectory(prefix="emobench.") as folder:
            self.root = Path(folder)
            with hub_errors(self.name):
                api = huggingface_hub.HfApi()
                tree = api.list_repo_tree(self.repo, recursive=True, revision=self.commit, repo_type="dataset")
                self.sizes = {file.path: file.size for file in tree if isinstance(file, RepoFile)}
                self.require_small()
                if DIGESTS in self.sizes:
                    api.snapshot_download(
                        self.repo, repo_type="dataset", revision=self.commit, local_dir=folder, allow_patterns=FILES
                    )
            yield

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self.sizes})

    def require_small(self) -> None:
        """Raise DataError for a file or a board that is too large, before anything is downloaded."""
        total = 0
        for name, size in self.sizes.items():
            if any(fnmatch(name, pattern) for pattern in FILES):
                most = LONGEST if name == DIGESTS else largest(name)
                total += size
                if most is not None and size > most:
                    raise self._too_large(name, most)
        if total > LARGEST:
            raise DataError(f"{self.name} has {total:,} bytes; a board has {LARGEST:,} at most. {NOTHING}")

    def publish(self, files: Mapping[str, Path], message: str) -> bool:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError

        operations = [huggingface_hub.CommitOperationAdd(name, path) for name, path in files.items()]
        with hub_errors(self.name):
            try:
                huggingface_hub.HfApi().create_commit(
                    self.repo,
                    operations=operations,
                    commit_message=message,
                    repo_type="dataset",
                    revision=BRANCH,
                    parent_commit=self.commit,
                )
            except HfHubHTTPError as error:
                if error.response.status_code in _CHANGED:
                    return False
                raise
        return True
