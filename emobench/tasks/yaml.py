"""YAML files whose errors name the file and the line. Only plain data is read; nothing in a file is executed."""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from emobench.core.errors import ConfigError
from emobench.core.reading import LONGEST_YAML, PlainLoader, read_text
from emobench.core.settings import Located

YAML = ".yaml"
ENDINGS = (YAML, ".yml")
"""How a file of the user's may end."""
SETTLED = 2 * 10**9
"""Nanoseconds after which a folder's time of change tells it from a later one, on coarse file systems too."""


def read_yaml(path: Path) -> Located:
    """Read a mapping; duplicate keys, other documents and syntax errors are a ConfigError with file and line.

    Parsed files are kept by their text: a sweep asks for the same ones thousands of times.
    """
    try:
        text = read_text(path)
        if len(text) > LONGEST_YAML:
            raise ConfigError(f"{path} has {len(text):,} characters; expected {LONGEST_YAML:,} at most.")
        data = copy.deepcopy(_parsed(text, str(path)))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: this is not YAML: {error.problem}.") from None
    except yaml.YAMLError as error:  # a character that no YAML may hold
        raise ConfigError(f"{path}: this is not YAML: {str(error).partition(chr(10))[0]}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(data, Located):
        raise ConfigError(f"{path}:1: expected a mapping of settings, such as `name: {path.stem}`.")
    return data


@lru_cache(maxsize=256)
def _parsed(text: str, file: str) -> Any:
    return yaml.load(text, _loader(file))


def _loader(file: str) -> type[PlainLoader]:
    class Loader(PlainLoader):
        def mapping(self, node: yaml.MappingNode) -> Located:
            located = Located(file, node.start_mark.line + 1)
            for key_node, value_node in node.value:
                line = key_node.start_mark.line + 1
                key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
                if not isinstance(key, str):
                    raise ConfigError(f"{file}:{line}: a key is {key!r}; expected text, in quotes if need be.")
                if key in located:
                    raise ConfigError(f"{file}:{line}: `{key}` stands twice; keep one.")
                located[key] = self.construct_object(value_node, deep=True)  # type: ignore[no-untyped-call]
                located.lines[key] = line
            return located

    def construct(loader: Any, node: Any) -> Located:
        return loader.mapping(node)

    def construct_scalar(loader: Any, node: Any) -> Any:
        try:
            return getattr(PlainLoader, f"construct_yaml_{node.tag.rpartition(':')[2]}")(loader, node)
        except ValueError:  # not a date or number, such as 2020-13-45
            line = node.start_mark.line + 1
            raise ConfigError(f"{file}:{line}: {node.value} cannot be read; put text in quotes.") from None

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    for tag in ("int", "float", "timestamp"):
        Loader.add_constructor(f"tag:yaml.org,2002:{tag}", construct_scalar)
    return Loader


def yaml_files(folder: Path) -> Mapping[str, Path]:
    """Return the YAML files of a folder, which may be absent, and of those in it; ConfigError for unreadable ones.

    They are found by their paths in it, with slashes and without the suffix.
    """

    listed = _listed.get(folder)
    if listed is None or not listed.holds():
        listed = _listed[folder] = _Listing.of(folder)
    return listed.files


@dataclass(frozen=True)
class _Listing:
    """The YAML files of a folder, and when each folder in it was changed last: then its names were."""

    files: dict[str, Path]
    changed: dict[Path, int]
    """Nanoseconds; empty where a folder is absent or was changed just now, and may change within a clock's tick."""

    @classmethod
    def of(cls, folder: Path) -> _Listing:
        def refuse(error: OSError) -> None:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.") from None

        began, paths, changed = time.time_ns(), [], {}
        for place, _, files in os.walk(folder, onerror=refuse):
            changed[Path(place)] = Path(place).stat().st_mtime_ns
            paths += [Path(place, file) for file in files if file.endswith(YAML)]
        if began - max(changed.values(), default=0) <= SETTLED:
            changed = {}
        named = {path.relative_to(folder).as_posix().removesuffix(YAML): path for path in sorted(paths)}
        return cls(named, changed)

    def holds(self) -> bool:
        try:
            return bool(self.changed) and all(one.stat().st_mtime_ns == when for one, when in self.changed.items())
        except OSError:
            return False


_listed: dict[Path, _Listing] = {}
