"""The families of plugins: objectives, kinds of task, and those that kinds declare."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ConfigError, PluginError, UnknownNameError
from emobench.core.family import Family, Loaded, check_contract, module_of_file, run_foreign
from emobench.core.reading import is_file, is_folder, names_path
from emobench.core.settings import PRETRAINED, build, code_sha256, file_sha256, parse_call
from emobench.kinds.interface import Kind, V
from emobench.kinds.views import NamedTasks
from emobench.tasks.spec import BY_KIND, Task

if TYPE_CHECKING:
    from emobench.objectives import Objective


def families() -> dict[str, Family[Any]]:
    """Return all families by their plural: "objectives", "kinds", and those of the kinds that can be loaded."""
    declared: list[Family[Any]] = [OBJECTIVES, KINDS]
    for cls in KINDS.usable().values():
        declared += cls.families
    return {family.plural: family for family in declared}


def family_of(plugin: object) -> Family[Any]:
    """Return the family of a plugin. Raises PluginError if it belongs to none."""
    for family in families().values():
        if isinstance(plugin, family.base_classes()):
            return family
    raise PluginError(f"{type(plugin).__name__} belongs to no family of plugins: {', '.join(families())}.")


# Kinds of task.


KINDS: Family[Kind] = Family(
    name="kind",
    title="Kinds of task",
    bases=("emobench.kinds.interface:Kind",),
    checks="emobench.kinds.checks:checks",
    facts="emobench.kinds.checks:facts",
    columns=("reads", "families"),
    templates=Path(__file__).parent / "templates" / "kinds",
    usage=("emobench run --suite $module --objective mle", "emobench settings $name"),
)


def kind_names() -> list[str]:
    """Return the names of the installed kinds of task, without importing them."""
    return KINDS.names()


@cache
def load_kind(name: str) -> Kind:
    """Return a kind of task. Raises PluginError if it does not keep the contract."""
    return KINDS.load(name).plugin


@cache
def kind_identity(name: str) -> dict[str, Any]:
    """Return the source and the versions of a stranger's kind, part of every key; empty for a built-in kind."""
    loaded = KINDS.load(name)
    return {"source": loaded.source_sha256, "packages": dict(loaded.versions)} if loaded.versions else {}


def usable_kinds() -> list[Kind]:
    """Return all kinds of task that can be loaded."""
    return [load_kind(name) for name in KINDS.usable()]


def kinds_with(view: type[V]) -> dict[str, V]:
    """Return a view of all kinds that declare it, by the name of the kind."""
    views = {}
    for kind in usable_kinds():
        of_kind = kind.view(view)
        if of_kind is not None:
            views[kind.name] = of_kind
    return views


def kind_of_name(name: str) -> tuple[Kind, Callable[[Mapping[str, Any]], Task]] | None:
    """Return the kind of a task without a file, such as "lm-eval:hellaswag", and what makes it from overridden rules.

    None for a task that has a file.
    """
    prefix, separator, rest = name.partition(BY_KIND)
    if not separator:
        return None
    kind = load_kind(prefix.replace("-", "_"))
    tasks = kind.view(NamedTasks)
    if tasks is None:
        raise ConfigError(f"{name}: tasks of kind {kind.name} have files; see `emobench tasks list`.")
    return kind, lambda overrides: tasks.named_task(rest, overrides)


# Objectives, which are named by combinations and by files, too.

CLOSE = 0.7
"""The similarity (`difflib`) from which a name is taken for a slip of another one."""
_NAME = re.compile(r"[A-Za-z][\w-]{0,99}")


class LoadedObjective(Loaded["Objective"]):
    """An objective with its parameters, and what identifies its code."""

    @property
    def objective(self) -> Objective:
        return self.plugin

    @property
    def name(self) -> str:
        return self.plugin.name


class _Objectives(Family["Objective"]):
    def origin(self, name: str) -> str:
        """Return the distribution and version of an objective, or its file."""
        return str(Path(name.rpartition(":")[0]).resolve()) if ".py:" in name else super().origin(name)

    def class_of(self, name: str) -> type[Objective]:
        """Return the class of an installed objective, or of one in a file, `path.py:Class`."""
        if name == PRETRAINED:
            raise ConfigError(f"'{PRETRAINED}' is no objective: it is a model as it is; use `emobench evaluate`.")
        path, _, attribute = name.rpartition(":")
        if path.endswith(".py"):
            return _objective_from_file(Path(path), attribute)
        if name not in self.names() and ("/" in name or "." in name) and not is_folder(Path(name)):
            raise ConfigError(
                f"'{name}' names no class of a Python file; expected ./FILE.py:CLASS, or a name that `emobench "
                "objectives list` shows."
            )
        return super().class_of(name)

    def terms(self, text: str) -> list[tuple[str, str]]:
        from emobench.objectives.expression import parse_terms

        terms = parse_terms(text)
        if len(terms) == 1 and terms[0].weight is None:
            return [(terms[0].call, "")]
        return [(term.call, str(term.weight or 1)) for term in terms]

    def load(self, text: str) -> LoadedObjective:
        return load_objective(text)


OBJECTIVES = _Objectives(
    name="objective",
    title="Training objectives",
    bases=("emobench.objectives:Objective",),
    checks="emobench.testing.objectives:checks",
    facts="emobench.testing.objectives:facts",
    columns=("parameters", "equation"),
    templates=Path(__file__).parent / "templates" / "objectives",
    variants=("statistics", "logits", "model"),
    usage=("emobench run --objective mle --objective $name",),
)


def objective_names() -> list[str]:
    """Return the names of the installed objectives, without importing them."""
    return OBJECTIVES.names()


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
    objectives: list[Objective] = []
    versions: dict[str, str] = {}
    for term in terms:
        name, given = parse_call(term.call)
        both = given.keys() & (settings or {}).keys()
        if both:
            raise ConfigError(
                f"`{min(both)}` is given in --objective '{term.call}' and in --set objective.{min(both)}; keep one."
            )
        cls = OBJECTIVES.class_of(name)
        objectives.append(build(cls, {**given, **(settings or {})}, f"objective {cls.name}"))
        versions |= OBJECTIVES.brought(name)
    digest = _with_costs(OBJECTIVES.digest(*map(type, sorted(objectives, key=repr))), objectives)
    objective = objectives[0] if alone else combine(objectives, weights)
    return LoadedObjective(objective, digest, versions)


def _with_costs(digest: str, objectives: Iterable[Objective]) -> str:
    """Return the digest of objectives' code with the files of their ground costs, which are part of what they compute.

    Raises ConfigError if there is no such file, and PluginError for one that cannot be read.
    """
    from emobench.objectives.cost import cost_file

    files: dict[Path, str] = {}
    for objective in objectives:
        file = cost_file(str(objective.params.get("cost")))
        if file is None:
            continue
        if not is_file(file):
            raise ConfigError(f"There is no file {file}; expected a ground cost as ./FILE.py:FUNCTION or ./FILE.npy.")
        digest_of = partial(code_sha256, [str(file)]) if file.suffix == ".py" else partial(file_sha256, file)
        files[file] = run_foreign(digest_of, f"The file {file}", "cannot be read", str(file.absolute()))
    if not files:
        return digest
    return hashlib.sha256("".join([digest, *sorted(files.values())]).encode()).hexdigest()


@dataclass(frozen=True)
class NamedObjective:
    """The objective of another program, of which the name and the parameters are known."""

    name: str
    params: Mapping[str, Any]
    version: str = "declared"

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}({shown})" if shown else self.name


def declared_objective(text: str, settings: Mapping[str, Any] | None = None) -> LoadedObjective:
    """Return the objective that another program trained with: as `load_objective`, or an unknown one such as `dpo`.

    Raises UnknownNameError for a name that is almost that of an installed objective.
    """
    try:
        return load_objective(text, settings)
    except UnknownNameError:
        name, params = parse_call(text)
        swapped = sorted(name) in map(sorted, objective_names())  # mel for mle
        if swapped or get_close_matches(name, objective_names(), cutoff=CLOSE) or not _NAME.fullmatch(name):
            raise
    unknown: Any = NamedObjective(name, {**params, **(settings or {})})
    return LoadedObjective(unknown, "", {})


def require_installed(text: str) -> None:
    """Raise ConfigError unless the text of an entry's objective names installed objectives alone, and no path.

    An entry may be a stranger's: no file that it names is run, and no folder in a parameter is read.
    """
    from emobench.objectives.expression import parse_terms

    for term in parse_terms(text):
        name, given = parse_call(term.call)
        if name not in objective_names():
            raise ConfigError(
                f"The entry's objective '{name}' is not installed; see `emobench objectives list`. If it is in a file "
                "of yours, name it: --objective ./FILE.py:CLASS."
            )
        for key, value in given.items():
            if isinstance(value, str) and names_path(value):
                raise ConfigError(f"The entry's objective '{text}' has the path {value} as `{key}`, which is not read.")


def objective_files(text: str, settings: Mapping[str, Any] | None = None) -> set[Path]:
    """Return the Python files that an objective's text and its `settings` name; they are not read."""
    from emobench.objectives.expression import parse_terms

    names = list((settings or {}).values())
    for term in parse_terms(text):
        name, given = parse_call(term.call)
        names += [name, *given.values()]
    files = set()
    for name in names:
        if ".py:" in str(name):
            file, _, _ = str(name).rpartition(":")
            files.add(Path(file))
    return files


def load_loss(text: str) -> Callable[..., Any] | None:
    """Return the loss of another program that a text names; None if the text names objectives.

    `package.module:name` or `./file.py:name`, with arguments in parentheses: a class is called with them, and a
    function gets them in every call. Raises PluginError for a module that does not import or a class that cannot be
    built, and UnknownNameError or ConfigError for an attribute that is no loss.
    """
    from emobench.objectives import Objective

    terms = OBJECTIVES.terms(text)
    if len(terms) > 1 or terms[0][1] or ":" not in text.partition("(")[0]:
        return None
    name, given = parse_call(text)
    place, _, attribute = name.rpartition(":")
    if place.endswith(".py"):
        module = module_of_file(Path(place), "a loss as path.py:name")
    else:
        module = run_foreign(lambda: import_module(place), f"The module {place}")
    loss = getattr(module, attribute, None)
    if isinstance(loss, type):
        if issubclass(loss, Objective):
            return None
        return run_foreign(lambda: loss(**given), name, "cannot be built", file=place)
    if not callable(loss):
        raise ConfigError(f"{place} has no function or class '{attribute}'; expected that of a loss.")
    return partial(loss, **given) if given else loss


def _objective_from_file(path: Path, attribute: str) -> type[Objective]:
    from emobench.objectives import Objective

    module = module_of_file(path, "an objective as path.py:Class")
    classes = {}
    for own_name, value in vars(module).items():
        if isinstance(value, type) and issubclass(value, Objective) and value.__module__ == module.__name__:
            classes[own_name] = value
    if attribute not in classes:
        raise UnknownNameError("objective class", attribute, classes, where=f"{path}: ")
    check_contract(classes[attribute], f"{path}:{attribute}")
    return classes[attribute]
