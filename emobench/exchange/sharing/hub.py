"""A shared board in a data set of the Hugging Face hub."""

from __future__ import annotations

import glob
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import DataError
from emobench.exchange.sharing.digests import DIGESTS, LONGEST, largest, read_digests
from emobench.exchange.sharing.folder import FolderCopy, too_large
from emobench.leaderboard.run_files import PACKED
from emobench.models.hub import resolve_revision

if TYPE_CHECKING:
    from huggingface_hub import CommitOperationAdd

BRANCH = "main"
LARGEST = 2**30
"""Bytes of the largest board that is downloaded."""
FILES = (f"{DIGESTS}*", "*-v*/*.json", f"{PACKED}/*")
"""What is downloaded, as patterns of names."""
_CHANGED = (HTTPStatus.PRECONDITION_FAILED, HTTPStatus.CONFLICT)


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
