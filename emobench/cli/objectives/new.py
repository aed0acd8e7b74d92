"""What `emobench objectives new` writes: a package with an objective that works, to be made one's own."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from string import Template

from emobench.config import PRETRAINED
from emobench.errors import ConfigError, StorageError
from emobench.registry import objective_names, objective_origin

TEMPLATES = Path(__file__).parent / "templates"
KINDS = {
    "statistics": {"parameter": "gamma", "other": "2", "equation": "-(1 - sg(q_t))^gamma log q_t"},
    "logits": {"parameter": "margin", "other": "2", "equation": "log(1 + sum_{v != t} exp(z_v - z_t + margin))"},
    "model": {"parameter": "exponent", "other": "0.5", "equation": "sum_t (-log q_t) / n^exponent"},
}
"""What the templates of each kind fill in."""


def write_package(name: str, kind: str, directory: Path) -> Path:
    """Write the package of an objective into a new folder `directory/name`, and return the folder.

    Raises ConfigError where the name is taken or not in kebab case, or where the folder exists.
    """
    _check_name(name)
    folder = directory / name
    if folder.exists():
        raise ConfigError(f"{folder} exists; give another name, or another place with --directory.")
    if not directory.is_dir():
        raise ConfigError(f"--directory {directory} is not a folder; create it first, or give another.")
    try:
        for path, text in _files(name, kind).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error.strerror}.") from None
    return folder


def module_name(name: str) -> str:
    """Return the module of an objective's package; the prefix keeps it apart from what else is installed."""
    return f"emobench_{name.replace('-', '_')}"


def _check_name(name: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigError(f"'{name}' cannot name an objective; expected small letters, digits and hyphens: my-loss.")
    if name == PRETRAINED:
        raise ConfigError(f"'{name}' stands for a model as it is; give the objective another name.")
    if name in objective_names():
        raise ConfigError(f"'{name}' is taken, by {objective_origin(name)}; give the objective another name.")
    if find_spec(module_name(name)) is not None:
        raise ConfigError(f"The module {module_name(name)} is installed already; give the objective another name.")


def _files(name: str, kind: str) -> dict[str, str]:
    module, class_name = module_name(name), "".join(word.capitalize() for word in name.split("-"))
    words = {"name": name, "module": module, "class_name": class_name, **KINDS[kind]}
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{module}.py": f"{kind}.py",
        f"tests/test_{module}.py": f"test_{kind}.py",
    }
    return {
        path: Template((TEMPLATES / f"{source}.tmpl").read_text()).substitute(words) for path, source in sources.items()
    }
