"""YAML files whose errors name the file and the line. Only plain data is read; nothing in a file is executed."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
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
    loader = _Loader(text)
    loader.name = file
    return loader.get_single_data()  # type: ignore[no-untyped-call]


class _Loader(PlainLoader):
    """Makes Located mappings of the file `name`."""

    def located(self, node: yaml.MappingNode) -> Located:
        located = Located(self.name, node.start_mark.line + 1)
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
            if not isinstance(key, str):
                raise ConfigError(f"{self.name}:{line}: a key is {key!r}; expected text, in quotes if need be.")
            if key in located:
                raise ConfigError(f"{self.name}:{line}: `{key}` stands twice; keep one.")
            located[key] = self.construct_object(value_node, deep=True)  # type: ignore[no-untyped-call]
            located.lines[key] = line
        return located

    def scalar(self, node: yaml.ScalarNode) -> Any:
        try:
            return getattr(PlainLoader, f"construct_yaml_{node.tag.rpartition(':')[2]}")(self, node)
        except ValueError:  # not a date or number, such as 2020-13-45
            line = node.start_mark.line + 1
            raise ConfigError(f"{self.name}:{line}: {node.value} cannot be read; put text in quotes.") from None


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.located)
for _tag in ("int", "float", "timestamp"):
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _Loader.scalar)


def yaml_files(folder: Path) -> Mapping[str, Path]:
    """Return the YAML files of a folder, which may be absent, and of those in it; ConfigError for unreadable ones.

    They are found by their paths in it, with slashes and without the suffix.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.") from None

    files: dict[str, Path] = {}
    for place, _, names in os.walk(folder, onerror=refuse):
        for path in (Path(place, name) for name in names if name.endswith(YAML)):
            files[path.relative_to(folder).as_posix().removesuffix(YAML)] = path
    return dict(sorted(files.items()))
