"""Read untrusted input safely: regular files, and JSON and YAML of limited depth. No code is executed.

Reading a pipe or a device might never end. Deep nesting, YAML aliases and numbers with a million digits could exhaust
time and stack. All of these are refused here.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from io import BufferedReader
from json import JSONDecoder
from pathlib import Path
from typing import Any

import yaml

from emobench.core.errors import ConfigError, first_line

DEEPEST = 64
"""Largest depth of nested lists and mappings. emobench itself needs fewer than 10."""
LONGEST_YAML = 2**20
"""Largest number of characters of a YAML file. The parser in Python needs a few seconds for it."""
LONGEST_LINE = 2**24
"""Largest number of bytes of a line of JSON Lines."""
MOST_BYTES = 2**31
"""Largest number of bytes of a file that is read at once. A sparse file of a few bytes on a disk can have terabytes."""
MOST_BITS = 10_000
"""Largest number of bits of an integer. Python prints at most 4,300 digits."""
_PATH_START = re.compile(r"(?:^\s*|[=(,]\s*['\"]?)(?:~|\.{0,2}/|[A-Za-z]:\\)")
_PYTHON_FILE = re.compile(r"\.py\s*:", re.IGNORECASE)
_SIGNS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_JSON = JSONDecoder()


class TooDeepError(ValueError):
    """Lists and mappings are nested too deeply."""

    def __init__(self) -> None:
        super().__init__(f"nested deeper than {DEEPEST} levels")


def open_file(path: str | Path) -> BufferedReader:
    """Open a regular file for reading. Raises OSError for a pipe, a device or a folder."""
    opened = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
        opened.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return opened


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_bytes(path: str | Path, longest: int = -1) -> bytes:
    """Return the content of a regular file, or its first `longest` bytes. Raises OSError, also for a huge file."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if longest < 0 and size > MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has {size:,} bytes; at most {MOST_BYTES:,} are read", str(path))
        return file.read(longest)


def read_text(path: str | Path) -> str:
    """Return the UTF-8 text of a regular file. Raises OSError and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8")


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file, without dates. Raises ConfigError for a file that cannot be read."""
    try:
        content = tomllib.loads(read_text(path))
        json.dumps(content, allow_nan=False)  # no dates, and no infinity
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}; expected one in TOML.") from None
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {first_line(error)}") from None
    return content


def parse_json(text: str, decoder: JSONDecoder = _JSON) -> Any:
    """Parse JSON. Raises ValueError for invalid JSON, deep nesting and numbers with too many digits."""
    require_shallow(text)
    return decoder.decode(text)


def parse_mapping(text: str) -> dict[str, Any]:
    """Parse a JSON object of a file of runs. Raises ValueError for what `parse_json` refuses, and for no object.

    Half a surrogate, as in "\\ud800", is refused, too: such text cannot be printed or written.
    """
    found = parse_json(text)
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object, got {type(found).__name__}")
    if _SURROGATE.search(text):
        try:
            json.dumps(found, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half a surrogate, which is no text") from None
    return found


class LineError(ValueError):
    """A line of JSON Lines that cannot be used; `number` counts from 1."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


def json_rows(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a JSON Lines file (UTF-8) with the numbers of their lines. Raises OSError and LineError."""
    with open_file(path) as file:
        for number, line in numbered_lines(file):
            try:
                row = parse_mapping(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise LineError(number, f"is not UTF-8 ({error})") from None
            except ValueError as error:
                raise LineError(number, str(error)) from None
            yield number, row


def numbered_lines(file: BufferedReader, longest: int = LONGEST_LINE) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file with their numbers. Raises LineError for a line of more than `longest` bytes."""
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), 1):
        if len(line) > longest:
            raise LineError(number, f"more than {longest:,} bytes")
        yield number, line


def number_of(value: Any) -> float:
    """Return a number of JSON; infinity for what no float can hold. Raises ValueError for other types."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{str(value)[:40]!r} is no number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


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
    """Return whether a path from the user is a folder. Raises PermissionError if this user may not look."""
    return _is_kind(path, stat.S_ISDIR)


def is_file(path: Path) -> bool:
    """Return whether a path from the user is a regular file. Raises PermissionError if this user may not look."""
    return _is_kind(path, stat.S_ISREG)


def _is_kind(path: Path, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(path.stat().st_mode)
    except PermissionError:  # "there is none" would be wrong, and another source would be read
        raise
    except (OSError, ValueError):  # also a path that is not valid, such as one that is too long
        return False


path_exists = os.path.exists
"""Return whether a path from the user exists; False for a path that is not valid."""


def names_path(text: str) -> bool:
    """Return whether text of a stranger names, or may name, a file or folder of this machine.

    It does if it, or an argument within it, begins as a path does, if it names a class of a Python file, and if it has
    a slash and such a file or folder exists: `theirs/model` is no hub id then.
    """
    if "\0" in text or _PATH_START.search(text) or _PYTHON_FILE.search(text):
        return True
    return "/" in text and path_exists(text)


def expand_home(path: str | Path) -> Path:
    """Replace `~` by the home folder. A path with an unknown user does not change."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


class RefusedError(yaml.MarkedYAMLError):
    """YAML that could exhaust time or stack."""

    def __init__(self, problem: str, mark: Any) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class PlainLoader(yaml.SafeLoader):
    """Reads YAML of limited depth without aliases, which can multiply their content."""

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
