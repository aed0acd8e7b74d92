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
_GIT = re.compile(r"(?:ssh|git|https?)://.+|[\w.-]+@[\w.-]+:.+|.+\.git/?")
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
    """Return the place that REPO means: a folder, or a data set of the hub. Raises ConfigError."""
    from emobench.exchange.sharing.folder import FolderPlace
    from emobench.exchange.sharing.hub import HubPlace

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
