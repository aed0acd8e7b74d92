"""Reading what a stranger may have written: regular files, and JSON and YAML of a bounded depth. Nothing is executed.

A pipe or a device would be waited for without end; brackets in brackets, aliases of aliases and numbers of a million
digits take a reader's time and stack. All of these are refused here, where text becomes a value.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from io import BufferedReader
from json import JSONDecoder
from pathlib import Path
from typing import Any

import yaml

DEEPEST = 64
"""Lists and mappings in one another; no setting, row or index of ours has 10."""
LONGEST_YAML = 2**20
"""Characters of a YAML file; a pure Python parser reads this in a few seconds."""
MOST_BITS = 10_000
"""Of a whole number: Python prints 4,300 digits at most, and nobody reads as many."""
_SIGNS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_JSON = JSONDecoder()


class TooDeepError(ValueError):
    """Lists and mappings are nested deeper than any reader needs."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {DEEPEST} levels")


def open_file(path: str | Path) -> BufferedReader:
    """Open a regular file for reading; OSError with a sentence's end in `strerror` for a pipe, a device or a folder."""
    opened = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return opened


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_bytes(path: str | Path, longest: int = -1) -> bytes:
    """Return the content of a regular file, of its first `longest` bytes if asked for. Raises OSError."""
    with open_file(path) as file:
        return file.read(longest)


def read_text(path: str | Path) -> str:
    """Return the UTF-8 text of a regular file. Raises OSError and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8")


def parse_json(text: str, decoder: JSONDecoder = _JSON) -> Any:
    """Return the value of JSON. Raises ValueError for what is none, is nested too deeply or has endless digits."""
    require_shallow(text)
    return decoder.decode(text)


def require_shallow(text: str) -> None:
    """Raise TooDeepError for JSON that is nested deeper than DEEPEST."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for sign in _SIGNS.finditer(text):
        depth += (sign[0] in "[{") - (sign[0] in "]}")
        if depth > DEEPEST:
            raise TooDeepError


def is_folder(path: Path) -> bool:
    """Return whether a path that a user gave is a folder; no for one that the system cannot even look for.

    Raises PermissionError where this user may not look.
    """
    try:
        return path.is_dir()
    except PermissionError:
        raise
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Return whether a path that a user gave is a regular file; no for one that the system cannot even look for.

    Raises PermissionError where this user may not look.
    """
    try:
        return path.is_file()
    except PermissionError:
        raise
    except OSError:
        return False


def path_exists(path: Path) -> bool:
    """Return whether there is anything at a path that a user gave."""
    try:
        return path.exists()
    except OSError:
        return False


def expand_home(path: str | Path) -> Path:
    """Return a path with `~` as the home folder; as it is where there is no such user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


class RefusedError(yaml.MarkedYAMLError):
    """YAML that would take a reader's time or stack."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class PlainLoader(yaml.SafeLoader):
    """Reads YAML of a bounded depth, without aliases, which multiply what they stand for."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        if isinstance(event, yaml.AliasEvent) and event.anchor in self.anchors:
            raise RefusedError("an alias (`*name`) stands for other text; write that out", event.start_mark)
        self._depth += 1
        if self._depth > DEEPEST:
            raise RefusedError(str(TooDeepError()), event.start_mark)
        node = super().compose_node(parent, index)  # type: ignore[no-untyped-call]
        self._depth -= 1
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value = super().construct_yaml_int(node)  # type: ignore[no-untyped-call]
        if value.bit_length() > MOST_BITS:
            raise ValueError(f"a whole number of more than {MOST_BITS:,} bits")
        return value


PlainLoader.add_constructor("tag:yaml.org,2002:int", PlainLoader.construct_yaml_int)
