"""Names, files and combinations to objectives."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.reading import is_file, is_folder, names_path, read_bytes
from emobench.core.settings import PRETRAINED, build, parse_call
from emobench.registry.plugin_checks import check_concrete
from emobench.registry.plugins import (
    OBJECTIVES,
    brought,
    class_of,
    files_digest,
    origin,
    plugin_names,
    run_foreign,
)

if TYPE_CHECKING:
    from emobench.objectives import Objective


@dataclass(frozen=True)
class LoadedObjective:
    """An objective with its parameters, and what identifies its code."""

    objective: Objective
    source_sha256: str
    versions: Mapping[str, str]
    """Of the packages that a stranger's brings: its own, and what it requires."""

    @property
    def name(self) -> str:
        return self.objective.name


def objective_names() -> list[str]:
    """Return the names of the installed objectives, without importing them."""
    return plugin_names(OBJECTIVES)


def objective_origin(name: str) -> str:
    """Return where an objective is from: its distribution and version, such as "emobench 0.1.0", or its file."""
    return str(Path(name.rpartition(":")[0]).resolve()) if ".py:" in name else origin(OBJECTIVES, name)


def load_objective(text: str, settings: Mapping[str, Any] | None = None) -> LoadedObjective:
    """Build the objective that `--objective` names: `emo`, `tailr(gamma=0.2)`, `./my_loss.py:MyLoss`, or a combination.

    `settings` are `--set objective.*` values; a parameter given both ways is an error. A combination, such as
    `0.5*emo + linear(1, 0)*mle`, has its parameters inline; see `emobench.objectives.expression`.
    """
    from emobench.objectives.combination import combine
    from emobench.objectives.expression import Constant, parse_terms

    terms = parse_terms(text)
    weights = [term.weight or Constant(1) for term in terms]
    alone = weights == [Constant(1)]
    if settings and not alone:
        raise ConfigError(
            f"--set objective.{min(settings)}: '{text}' has weights or several terms; give parameters inline, such as "
            '--objective "0.5*tailr(gamma=0.2) + 0.5*mle".'
        )
    objectives = [_build_objective(term.call, settings or {}) for term in terms]
    digest = source_digest(*map(type, sorted(objectives, key=repr)))
    parts = [brought(OBJECTIVES, parse_call(term.call)[0]) for term in terms]
    versions = {package: one for versions in parts for package, one in versions.items()}
    return LoadedObjective(objectives[0] if alone else combine(objectives, weights), digest, versions)


def require_installed(text: str) -> None:
    """Raise ConfigError unless the text of an entry's objective names installed objectives alone, and no path.

    An entry may be a stranger's: no file that it names is run, and no folder in a parameter is read.
    """
    from emobench.objectives.expression import parse_terms

    for term in parse_terms(text):
        name, given = parse_call(term.call)
        if name not in objective_names():
            raise ConfigError(
                f"The entry's objective '{name}' is not installed: `emobench objectives list` shows those that are. If "
                "it is yours, of a file, name it: --objective ./FILE.py:CLASS."
            )
        for key, value in given.items():
            if isinstance(value, str) and names_path(value):
                raise ConfigError(f"The entry's objective '{text}' has the path {value} as `{key}`, which is not read.")


def objective_files(text: str) -> set[Path]:
    """Return the Python files that an objective's text names; they are not read."""
    from emobench.objectives.expression import parse_terms

    names = [parse_call(term.call)[0] for term in parse_terms(text)]
    return {Path(name.rpartition(":")[0]) for name in names if ".py:" in name}


def _build_objective(text: str, settings: Mapping[str, Any]) -> Objective:
    name, given = parse_call(text)
    both = given.keys() & settings.keys()
    if both:
        raise ConfigError(
            f"`{min(both)}` is given in --objective '{text}' and in --set objective.{min(both)}; keep one."
        )
    cls = objective_class(name)
    return build(cls, {**given, **settings}, f"objective {cls.name}")


def objective_class(name: str) -> type[Objective]:
    """Return the class of an installed objective, or of one in a file, `path.py:Class`."""
    if name == PRETRAINED:
        raise ConfigError(f"'{PRETRAINED}' is no objective: it stands for a model as it is; use `emobench evaluate`.")
    path, colon, attribute = name.rpartition(":")
    if colon and path.endswith(".py"):
        return _objective_from_file(Path(path), attribute)
    if name.endswith(".py"):
        raise ConfigError(f"'{name}' names a file; expected its class too, such as {name}:MyLoss.")
    if ("/" in name or "." in name) and name not in objective_names() and not is_folder(Path(name)):
        raise ConfigError(
            f"'{name}' names no class of a Python file; expected ./FILE.py:CLASS, or a name that `emobench objectives "
            "list` shows."
        )
    from emobench.objectives import Objective

    hint = "See `emobench objectives list`."
    cls = class_of(OBJECTIVES, name, "emobench_objectives", Objective, "objective", hint=hint)
    check_concrete(cls, f"The plugin '{name}': {cls.__name__}")
    return cls


def source_digest(*classes: type) -> str:
    """Return the sha256 of the code in the files that define objectives' classes and their bases outside the library.

    Comments, docstrings and layout are no code. Other modules that they import are not covered: raise `version` when
    such a helper changes the meaning.
    """
    from emobench.objectives import Objective

    bases = [base for cls in classes for base in cls.__mro__ if issubclass(base, Objective)]
    return files_digest(base for base in bases if not base.__module__.startswith("emobench.objectives."))


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None


class _ContentLoader(SourceFileLoader):
    """Loads a file's content as it was read.

    Python's own loader would take the bytecode of an earlier content that has the same size and second of change.
    """

    def __init__(self, name: str, path: Path, content: bytes) -> None:
        super().__init__(name, str(path))
        self._content = content

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._content, self.path)


def _objective_from_file(path: Path, attribute: str) -> type[Objective]:
    from emobench.objectives import Objective

    if not is_file(path):
        raise ConfigError(f"There is no file {path}; expected an objective as path.py:Class.")
    content = _content(path)
    # The digest in the name keeps two files of one name apart, and an edited one from its old self.
    name = f"emobench_file_{hashlib.sha256(content).hexdigest()[:12]}"
    loader = _ContentLoader(name, path.absolute(), content)
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    run_foreign(lambda: loader.exec_module(module), f"The file {path}", file=spec.origin)
    offered = {
        n: v
        for n, v in vars(module).items()
        if isinstance(v, type) and issubclass(v, Objective) and v.__module__ == name
    }
    if attribute not in offered:
        raise UnknownNameError("objective class", attribute, offered, where=f"{path}: ")
    check_concrete(offered[attribute], f"{path}:{attribute}")
    return offered[attribute]
