"""YAML files whose errors name the file and the line. Only plain data is read; nothing in a file is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from emobench.config import Located
from emobench.errors import ConfigError


def read_yaml(path: Path) -> Located:
    """Read a mapping; duplicate keys, other documents and syntax errors are a ConfigError with file and line."""
    try:
        data = yaml.load(path.read_text(encoding="utf-8"), _loader(str(path)))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: this is no YAML: {error.problem}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    if not isinstance(data, Located):
        raise ConfigError(f"{path}:1: expected a mapping of settings, such as `name: {path.stem}`.")
    return data


def _loader(file: str) -> type[yaml.SafeLoader]:
    class Loader(yaml.SafeLoader):
        def mapping(self, node: yaml.MappingNode) -> Located:
            found = Located(file, node.start_mark.line + 1)
            for key_node, value_node in node.value:
                key = self.construct_object(key_node, deep=True)  # type: ignore[no-untyped-call]
                line = key_node.start_mark.line + 1
                if key in found:
                    raise ConfigError(f"{file}:{line}: `{key}` stands twice; keep one.")
                found[key] = self.construct_object(value_node, deep=True)  # type: ignore[no-untyped-call]
                found.lines[key] = line
            return found

    def construct(loader: Any, node: Any) -> Located:
        return loader.mapping(node)

    Loader.add_constructor("tag:yaml.org,2002:map", construct)
    return Loader
