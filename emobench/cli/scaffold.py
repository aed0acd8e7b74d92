"""Writing the package of a plugin from templates: an objective, a metric, or a judge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from string import Template

from emobench.core.errors import ConfigError, StorageError


def write_package(
    name: str, directory: Path, templates: Mapping[str, Path], words: Mapping[str, str], *, what: str
) -> Path:
    """Write the package of a plugin into a new folder `directory/name`, and return the folder.

    `templates` maps a path in the package to the template of its file; both take `words`, and `name`, `module` and
    `class_name`. `what` is "an objective", "a metric" or "a judge". Raises ConfigError where the name is not in kebab
    case, or its module or the folder exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(
            f"'{name}' cannot name {what}; expected small letters, digits and hyphens: my-{what.rpartition(' ')[2]}."
        )
    module = module_name(name)
    if find_spec(module) is not None:
        raise ConfigError(f"The module {module} is installed already; give another name.")
    folder = directory / name
    if folder.exists():
        raise ConfigError(f"{folder} exists; give another name, or another place with --directory.")
    if not directory.is_dir():
        raise ConfigError(f"--directory {directory} is not a folder; create it first, or give another.")
    class_name = "".join(word.capitalize() for word in name.split("-"))
    given = {"name": name, "module": module, "class_name": class_name, **words}
    try:
        for path, template in templates.items():
            file = folder / Template(path).substitute(given)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Template(template.read_text()).substitute(given))
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error.strerror}.") from None
    return folder


def module_name(name: str) -> str:
    """Return the module of a plugin's package; the prefix keeps it apart from what else is installed."""
    return f"emobench_{name.replace('-', '_')}"
