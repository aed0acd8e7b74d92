"""What `emobench objectives new` writes: a package with an objective that works, to be made one's own."""

from __future__ import annotations

from pathlib import Path

from emobench.cli import scaffold
from emobench.core.errors import ConfigError
from emobench.core.settings import PRETRAINED
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
    if name == PRETRAINED:
        raise ConfigError(f"'{name}' stands for a model as it is; give the objective another name.")
    if name in objective_names():
        raise ConfigError(f"'{name}' is taken, by {objective_origin(name)}; give the objective another name.")
    templates = {
        "pyproject.toml": TEMPLATES / "pyproject.toml.tmpl",
        "README.md": TEMPLATES / "README.md.tmpl",
        "$module.py": TEMPLATES / f"{kind}.py.tmpl",
        "tests/test_$module.py": TEMPLATES / f"test_{kind}.py.tmpl",
    }
    return scaffold.write_package(name, directory, templates, KINDS[kind], what="an objective")
