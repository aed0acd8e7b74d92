"""Where a shared board may be, and what each kind of place can do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from emobench.core.errors import ConfigError
from emobench.core.reading import expand_home, is_folder

_HUB = re.compile(r"hf://datasets/([\w.-]+/[\w.-]+)")
_GIT = re.compile(r"(?:ssh|git|https?|file)://.+|[\w.-]+@[\w.-]+:.+|[^:]+\.git")
_SECRET = re.compile(r"(?<=://)[^/@:]*:[^/@]*@")


class Copy(Protocol):
    """A place as it is while it is open."""

    fixed: bool
    """Whether nobody can change what is read."""

    def names(self) -> list[str]:
        """Return the names of files and folders at its top."""
        ...

    def read(self, name: str, most: int) -> bytes | None:
        """Return a file, None where it is not there. Raises DataError for a link, and for more than `most` bytes."""
        ...

    def publish(self, files: Mapping[str, Path], message: str) -> bool:
        """Write files in this order; False where somebody else has just changed the place."""
        ...


class Place(Protocol):
    """Where a shared board is kept."""

    name: str
    """As the user gave it, without a password."""

    def opened(self, *, writing: bool) -> AbstractContextManager[Copy]:
        """Open it. Raises a UserError where it is not there or may not be used."""
        ...


def find_place(given: str) -> Place:
    """Return the place that REPO means: a folder, a git repository, or a data set of the hub. Raises ConfigError."""
    from emobench.exchange.sharing.folder import FolderPlace
    from emobench.exchange.sharing.git import GitPlace
    from emobench.exchange.sharing.hub import HubPlace

    if given.startswith("hf:"):
        if (found := _HUB.fullmatch(given)) is None:
            raise ConfigError(f"REPO {given}: expected hf://datasets/OWNER/NAME.")
        return HubPlace(given, found[1])
    name = _SECRET.sub("", given)
    address, hash_sign, branch = given.rpartition("#") if "#" in given else (given, "", "")
    for path, wanted in ((_path(given), ""), (_path(address), branch)):
        if is_folder(path):
            repository = (path / "HEAD").is_file() and (path / "objects").is_dir()
            if repository or wanted:
                return GitPlace(name, str(path.resolve()), wanted or None)
            return FolderPlace(name, path)
    if _GIT.fullmatch(address) is None:
        raise ConfigError(
            f"REPO {name}: there is no such folder. Make it (mkdir -p), or give a git repository (git@..., "
            "https://....git, #BRANCH after it) or a data set of the hub (hf://datasets/OWNER/NAME)."
        )
    return GitPlace(name, address, branch if hash_sign else None)


def _path(given: str) -> Path:
    return Path(unquote(urlsplit(given).path)) if given.startswith("file://") else expand_home(given)
