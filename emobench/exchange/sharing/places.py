"""Where a shared board may be: in a folder, such as of a network drive, or in a data set of the Hugging Face hub."""

from __future__ import annotations

import errno
import glob
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from emobench.core.errors import ConfigError, DataError
from emobench.core.files import write_whole
from emobench.core.locks import locked
from emobench.core.reading import expand_home, is_folder, read_bytes
from emobench.exchange.sharing.digests import DIGESTS, LONGEST, largest, read_digests
from emobench.leaderboard.run_files import PACKED
from emobench.models.hub import resolve_revision

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

LOCK = ".push.lock"
BRANCH = "main"
LARGEST = 2**30
"""Bytes of the largest board that is downloaded."""
FILES = (f"{DIGESTS}*", "*-v*/*.json", f"{PACKED}/*")
"""Patterns of the files that are downloaded."""
_CHANGED = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT)
_HUB = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)")
_GIT = re.compile(r"(?:ssh|git|https?)://.+|[\w.-]+@[\w.-]+:.+|.+\.git/?")
_SECRET = re.compile(r"(?<=://)[^/@:]*:[^/@]*@")


def find_place(given: str) -> FolderPlace | HubPlace:
    """Return the place that REPO means: a folder, or a data set of the hub. Raises ConfigError."""
    if given.startswith("hf:"):
        if (matched := _HUB.fullmatch(given)) is None:
            raise ConfigError(f"REPO {given}: expected hf://datasets/OWNER/NAME.")
        return HubPlace(given, matched[1])
    name, path = _SECRET.sub("", given), _path(given)
    if is_folder(path):
        return FolderPlace(name, path)
    if _GIT.fullmatch(given.partition("#")[0]):
        raise ConfigError(f"REPO {name} is the address of a git repository: clone it, and give the clone's folder.")
    raise ConfigError(
        f"REPO {name}: there is no such folder. Make it (mkdir -p), or give a data set of the hub "
        "(hf://datasets/OWNER/NAME)."
    )


def _path(given: str) -> Path:
    return Path(unquote(urlsplit(given).path)) if given.startswith("file://") else expand_home(given)


class FolderCopy:
    """The files of a folder, while it is open. Each is written under a temporary name and renamed.

    `fixed`: nobody can change the files meanwhile.
    """

    def __init__(self, name: str, root: Path, *, fixed: bool) -> None:
        self.name, self.root, self.fixed = name, root, fixed

    def names(self) -> list[str]:
        """Return the names of files and folders at its top."""
        return sorted(path.name for path in self.root.iterdir())

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file, None where it is not there. Raises DataError for a link, and for more than `most` bytes."""
        path = self.root / name
        if path.resolve() != self.root.resolve() / name:
            raise DataError(f"{self.name}: {name} is or lies behind a symbolic link. Nothing was written. Remove it.")
        try:
            content = read_bytes(path, most + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DataError(f"{self.name}: {name} cannot be read ({error.strerror}). Nothing was written.") from None
        if len(content) > most:
            raise too_large(self.name, name, most)
        return content

    def publish(self, files: Mapping[str, Path], message: str) -> bool:
        """Write files in this order; False where somebody else has just changed the place."""
        del message
        for name, path in files.items():
            write_whole(self.root / name, path.read_bytes(), name, "Free space there, and give the same push again.")
        return True


class FolderPlace:
    """A folder that all may write to. A push holds its lock. `name` is as the user gave it, without a password."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root

    @contextmanager
    def opened(self, *, writing: bool) -> Iterator[FolderCopy]:
        """Open it. Raises a UserError where it is not there or may not be used."""
        if not is_folder(self.root):
            raise DataError(f"{self.name}: the folder is gone. Give another one.")
        if not os.access(self.root, os.R_OK | os.X_OK | (os.W_OK if writing else 0)):
            right = "write to" if writing else "read"
            raise DataError(f"{self.name}: {os.strerror(errno.EACCES)}: you may not {right} it. Ask who owns it.")
        if not writing:
            yield FolderCopy(self.name, self.root, fixed=False)
            return
        with locked(self.root / LOCK):
            yield FolderCopy(self.name, self.root, fixed=True)


def too_large(where: str, name: str, most: int) -> DataError:
    """Return the error of a file that no push writes."""
    return DataError(f"{where}: {name} has more than {most:,} bytes. Nothing was written. Remove it there.")


class HubCopy(FolderCopy):
    """A commit of a data set, downloaded to a folder."""

    def __init__(self, place: HubPlace, commit: str, folder: Path, names: list[str]) -> None:
        super().__init__(place.name, folder, fixed=True)
        self._place, self._commit, self._names = place, commit, names

    def names(self) -> list[str]:
        return sorted({name.partition("/")[0] for name in self._names})

    def publish(self, files: Mapping[str, Path], message: str) -> bool:
        import huggingface_hub
        from huggingface_hub.errors import HfHubHTTPError

        try:
            huggingface_hub.HfApi().create_commit(
                self._place.repo,
                operations(files),
                commit_message=message,
                repo_type="dataset",
                revision=BRANCH,
                parent_commit=self._commit,
            )
        except HfHubHTTPError as error:
            if error.response.status_code in _CHANGED:
                return False
            raise _refused(self._place, error) from None
        except Exception as error:  # the errors of the HTTP client have no public common class
            raise _refused(self._place, error) from None
        return True


class HubPlace:
    """A data set of the hub."""

    def __init__(self, name: str, repo: str) -> None:
        self.name, self.repo = name, repo

    @contextmanager
    def opened(self, *, writing: bool) -> Iterator[HubCopy]:
        del writing
        import huggingface_hub
        from huggingface_hub.hf_api import RepoFile

        commit = resolve_revision(self.repo, BRANCH, offline=False, kind="dataset")
        with tempfile.TemporaryDirectory(prefix="emobench.") as folder:
            try:
                api = huggingface_hub.HfApi()
                tree = api.list_repo_tree(self.repo, recursive=True, revision=commit, repo_type="dataset")
                sizes = {file.path: file.size for file in tree if isinstance(file, RepoFile)}
                require_small(self, sizes)
                if DIGESTS in sizes:
                    given: dict[str, Any] = {"repo_type": "dataset", "revision": commit, "local_dir": folder}
                    api.snapshot_download(self.repo, allow_patterns=[f"{DIGESTS}*"], **given)
                    listed = read_digests((Path(folder) / DIGESTS).read_bytes(), self.name)
                    api.snapshot_download(self.repo, allow_patterns=wanted(self, sizes, listed), **given)
            except DataError:
                raise
            except Exception as error:  # the errors of the HTTP client have no public common class
                raise _refused(self, error) from None
            yield HubCopy(self, commit, Path(folder), list(sizes))


def wanted(place: HubPlace, sizes: Mapping[str, int], listed: Collection[str]) -> list[str]:
    """Return patterns of the listed files alone. Raises DataError if they are larger than a board."""
    total = sum(sizes.get(name, 0) for name in listed)
    if total > LARGEST:
        raise DataError(f"{place.name} has {total:,} bytes; a board has {LARGEST:,} at most. Nothing was written.")
    others = [name for name in sizes if name not in listed and any(fnmatch(name, one) for one in FILES[1:])]
    return [glob.escape(name) for name in listed] if others else list(FILES)


def require_small(place: HubPlace, sizes: Mapping[str, int]) -> None:
    """Raise DataError for a file that is larger than any of its name, before anything is downloaded."""
    for name, size in sizes.items():
        most = LONGEST if name.startswith(DIGESTS) else largest(name)
        if most is not None and size > most:
            raise too_large(place.name, name, most)


def operations(files: Mapping[str, Path]) -> list[CommitOperationAdd]:
    """Return what a commit adds."""
    from huggingface_hub import CommitOperationAdd

    return [CommitOperationAdd(path_in_repo=name, path_or_fileobj=path) for name, path in files.items()]


def _refused(place: HubPlace, error: Exception) -> DataError:
    cause = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return DataError(
        f"{place.name}: the hub refused ({cause:.300}). Check the name, `hf auth whoami`, and the network."
    )
