"""A board on disk: `<root>/<suite>-v<version>/<id>.json`, one file per entry, appended and superseded, never edited.

A file's name is a hash of its content, so that many processes may append at once without a lock.
"""

from __future__ import annotations

import json
from pathlib import Path

from emobench.config import canonical_json, to_plain
from emobench.errors import StorageError, UserError
from emobench.leaderboard.entry import Entry, entry_id, read_entry
from emobench.leaderboard.files import write_whole


class Leaderboard:
    """The entries under one folder, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self.problems: list[str] = []
        """What the last `entries()` skipped, a sentence for each file."""

    def path(self, entry: Entry) -> Path:
        return self.root / f"{entry.suite.name}-v{entry.suite.version}" / f"{entry.id}.json"

    def append(self, entry: Entry) -> Path:
        """Write an entry and return its file; nothing happens where it is there already.

        Raises StorageError where another content has its name, the disk is full or the folder cannot be written.
        """
        plain, path = to_plain(entry), self.path(entry)
        if entry_id(plain) != entry.id:
            raise StorageError(
                f"The entry {entry.id} was altered: its content's id is {entry_id(plain)}. Use `new_entry`."
            )
        if path.exists():
            if _same(path, plain):
                return path
            text = f"{path} exists with other content than the entry {entry.id}: it was altered. Restore or remove it."
            raise StorageError(text)
        hint = "Free space or choose another folder with --leaderboard DIR; finished runs are reused."
        text = json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(path, text, f"The entry {entry.id}", hint)
        return path

    def entries(self, *, suite: str | None = None, superseded: bool = False) -> list[Entry]:
        """Return the entries, oldest first; of one suite name if asked for.

        With `superseded`, those too that others supersede, or whose runs are all among the more runs of another one.

        A file that is no entry is skipped, and named in `problems`.
        """
        self.problems = []
        found = [entry for folder in self._list(self.root) for entry in self._folder(folder)]
        hidden = set() if superseded else {entry.supersedes for entry in found} | _contained(found)
        kept = [e for e in found if e.id not in hidden and suite in (None, e.suite.name)]
        return sorted(kept, key=lambda e: (e.provenance.created, e.id))

    def _list(self, folder: Path) -> list[Path]:
        try:
            return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
        except FileNotFoundError:
            return []
        except OSError as error:
            self.problems.append(f"{folder}: cannot be listed ({error.strerror}).")
            return []

    def _folder(self, folder: Path) -> list[Entry]:
        if not folder.is_dir():  # a README or a licence beside the suites
            return []
        return [entry for path in self._list(folder) if (entry := self._read(path)) is not None]

    def _read(self, path: Path) -> Entry | None:
        try:
            entry = read_entry(json.loads(path.read_text(encoding="utf-8")), str(path))
        except UserError as error:
            self.problems.append(str(error))
        except OSError as error:
            self.problems.append(f"{path}: cannot be read ({error.strerror}).")
        except (ValueError, RecursionError) as error:
            self.problems.append(f"{path}: no JSON of an entry ({error}); it may be truncated. Restore or remove it.")
        else:
            if path == self.path(entry):
                return entry
            self.problems.append(f"{path}: holds the entry that belongs in {self.path(entry)}. Move it there.")
        return None


def _contained(entries: list[Entry]) -> set[str | None]:
    """Return the ids of measured entries all of whose runs are among the more runs of another one."""
    holders: dict[str, list[Entry]] = {}
    for entry in entries:
        for run in entry.runs:
            holders.setdefault(run.key, []).append(entry)
    found: set[str | None] = set()
    for entry in entries:
        keys = {run.key for run in entry.runs}
        others = holders[entry.runs[0].key] if entry.runs else ()
        if any(keys < {run.key for run in other.runs} for other in others):
            found.add(entry.id)
    return found


def _same(path: Path, plain: object) -> bool:
    try:
        return canonical_json(json.loads(path.read_text(encoding="utf-8"))) == canonical_json(plain)
    except (OSError, ValueError, RecursionError):
        return False
