"""A shared board in a folder, such as of a network drive."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from emobench.core.errors import DataError
from emobench.core.files import write_whole
from emobench.core.locks import locked
from emobench.core.reading import is_folder, read_bytes

LOCK = ".push.lock"


class FolderCopy:
    """The files of a folder. Each is written under a temporary name and renamed."""

    def __init__(self, name: str, root: Path, *, fixed: bool) -> None:
        self.name, self.root, self.fixed = name, root, fixed

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())

    def read(self, name: str, most: int) -> bytes | None:
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
        del message
        for name, path in files.items():
            write_whole(self.root / name, path.read_bytes(), name, "Free space there, and give the same push again.")
        return True


class FolderPlace:
    """A folder that all may write to. A push holds its lock."""

    def __init__(self, name: str, root: Path) -> None:
        self.name, self.root = name, root

    @contextmanager
    def opened(self, *, writing: bool) -> Iterator[FolderCopy]:
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
