"""Names to plugins: the only module that reads entry points.

Plugins are loaded by name, one at a time, so that a broken one breaks only itself. Built-ins come in by the same door.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from emobench import hookspecs
from emobench.config import PRETRAINED, build, code_sha256, parse_call
from emobench.errors import ConfigError, EmobenchError, PluginError, UnknownNameError
from emobench.plugin_checks import check_arguments, check_concrete
from emobench.reading import is_file, read_bytes
from emobench.tasks.spec import Suite, Task, override, task_from
from emobench.tasks.table import Table
from emobench.tasks.yaml import read_yaml, yaml_files
from emobench.versions import brought_versions, minor_versions

if TYPE_CHECKING:
    from emobench.kinds.icl.retrieval.retriever import LoadedRetriever, Retriever
    from emobench.objectives import Objective
    from emobench.training.recipe import Recipe

OBJECTIVES, TASKS, COMPONENTS = "emobench.objectives", "emobench.tasks", "emobench.components"

T = TypeVar("T")


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
    return sorted({point.name for point in entry_points(group=OBJECTIVES)})


def objective_origin(name: str) -> str:
    """Return where an objective is from: its distribution and version, such as "emobench 0.1.0", or its file."""
    if ".py:" in name:
        return str(Path(name.rpartition(":")[0]).resolve())
    found = [point.dist for point in entry_points(group=OBJECTIVES, name=name) if point.dist]
    return f"{found[0].name} {found[0].version}" if found else "unknown"


def load_objective(text: str, settings: Mapping[str, Any] | None = None) -> LoadedObjective:
    """Build the objective that `--objective` names: `emo`, `tailr(gamma=0.2)`, `./my_loss.py:MyLoss`, or a combination.

    `settings` are `--set objective.*` values; a parameter given both ways is an error. A combination, such as
    `0.5*emo + linear(1, 0)*mle`, has its parameters inline; see `emobench.objectives.combination.expression`.
    """
    from emobench.objectives.combination.combine import combine
    from emobench.objectives.combination.expression import parse_terms
    from emobench.objectives.combination.schedules import Constant

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
    brought = [_brought(OBJECTIVES, parse_call(term.call)[0]) for term in terms]
    versions = {package: one for versions in brought for package, one in versions.items()}
    return LoadedObjective(objectives[0] if alone else combine(objectives, weights), digest, versions)


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
    module = _load_plugin(OBJECTIVES, name, "objective", hint="See `emobench objectives list`.")
    found = {cls.name: cls for cls in _offered(module, name)}
    if name not in found:
        raise PluginError(f"The plugin '{name}' offers {', '.join(found) or 'nothing'}, not '{name}'.")
    return found[name]


def _offered(module: ModuleType, name: str) -> list[type[Objective]]:
    from emobench.objectives import Objective

    found = [cls for result in _call(module, "emobench_objectives", name) for cls in _listed(result)]
    for cls in found:
        if not (isinstance(cls, type) and issubclass(cls, Objective)):
            raise PluginError(f"The plugin '{name}' returns {cls!r}; expected a list of objective classes.")
        check_concrete(cls, f"The plugin '{name}': {cls.__name__}")
    return found


def source_digest(*classes: type) -> str:
    """Return the sha256 of the code in the files that define objectives' classes and their bases outside the library.

    Comments, docstrings and layout are no code. Other modules that they import are not covered: raise `version` when
    such a helper changes the meaning.
    """
    from emobench.objectives import Objective

    bases = [base for cls in classes for base in cls.__mro__ if issubclass(base, Objective)]
    return _files_digest(base for base in bases if not base.__module__.startswith("emobench.objectives."))


def _files_digest(classes: Iterable[type]) -> str:
    return code_sha256(dict.fromkeys(inspect.getfile(cls) for cls in classes))


def retriever_names() -> list[str]:
    """Return the names of the installed retrievers, without importing them."""
    return sorted({point.name for point in entry_points(group=COMPONENTS)})


def load_retriever(text: str) -> LoadedRetriever:
    """Build the retriever that a protocol names: `dense`, or with parameters, `bm25(k1=1.2)`.

    A retriever refuses a parameter's value with a ValueError in its `__post_init__`.
    """
    from emobench.kinds.icl.retrieval.retriever import LoadedRetriever

    name, given = parse_call(text)
    cls = retriever_class(name)
    if given and not is_dataclass(cls):
        raise ConfigError(f"The retriever '{name}' has no parameters; expected retriever={name}.")
    try:
        retriever = build(cls, given, f"retriever {name}") if is_dataclass(cls) else cls()
    except ValueError as error:
        raise ConfigError(f"retriever {name}: {error}") from None
    try:
        named = minor_versions(*cls.packages)
    except PackageNotFoundError as error:
        raise PluginError(f"The retriever '{name}' computes with {error.name}, which is not installed.") from None
    return LoadedRetriever(retriever, _files_digest([cls]), {**named, **_brought(COMPONENTS, name)})


def retriever_class(name: str) -> type[Retriever]:
    """Return the class of an installed retriever; raises PluginError where it does not keep the contract."""
    from emobench.kinds.icl.retrieval.retriever import Retriever

    module = _load_plugin(COMPONENTS, name, "retriever")
    found = [cls for result in _call(module, "emobench_retrievers", name) for cls in _listed(result)]
    for cls in found:
        if not (isinstance(cls, type) and issubclass(cls, Retriever) and isinstance(getattr(cls, "name", None), str)):
            raise PluginError(
                f"The plugin '{name}' returns {cls!r}; expected a list of retriever classes with a `name`."
            )
    named = {cls.name: cls for cls in found}
    if name not in named:
        raise PluginError(f"The plugin '{name}' offers {', '.join(named) or 'nothing'}, not '{name}'.")
    label = f"The plugin '{name}': {named[name].__name__}"
    if inspect.isabstract(named[name]):
        raise PluginError(
            f"{label} does not define retrieve; write `def retrieve(self, pool, queries, count, context):`."
        )
    check_arguments(object.__new__(named[name]).retrieve, Retriever, "retrieve", label)
    return named[name]


def task_names() -> list[str]:
    """Return what all tasks are found by: the name, with the folder before it where its file is in one."""
    return sorted(_files("tasks"))


def suite_names() -> list[str]:
    """Return the names of all suites."""
    return sorted(_files("suites"))


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    return sorted(_files("recipes"))


def find_task(name: str, *, protocol: str | None = None, overrides: Mapping[str, Any] | None = None) -> Task:
    """Read a task, with one of its protocols and overridden rules."""
    path = _file("tasks", name, "task")
    task = task_from(read_yaml(path), protocol=protocol, overrides=overrides)
    return _named(task, task.name, path)


def protocol_names(task: str) -> list[str]:
    """Return the names of a task's protocols."""
    return list(read_yaml(_file("tasks", task, "task")).get("protocols") or ())


def find_suite(name: str) -> Suite:
    """Read a suite."""
    path = _file("suites", name, "suite")
    suite = build(Suite, read_yaml(path), str(path))
    return _named(suite, suite.name, path)


def find_recipe(name: str, *overrides: Mapping[str, Any]) -> Recipe:
    """Read a recipe and apply overrides, in order."""
    from emobench.training.recipe import Recipe

    path = _file("recipes", name, "recipe")
    recipe = _named(build(Recipe, data := read_yaml(path), str(path)), data.get("name"), path)
    for changes in overrides:
        recipe = override(recipe, changes, "--set recipe")
    return recipe


def table_names() -> list[str]:
    """Return the names of all published tables that can be made again."""
    return sorted(_files("tables"))


def find_table(name: str) -> Table:
    """Read a published table's rows."""
    path = _file("tables", name, "table")
    table = build(Table, read_yaml(path), str(path))
    return _named(table, table.name, path)


def _named(value: T, name: object, path: Path) -> T:
    if name != path.stem:
        raise ConfigError(f"{path}: the file says `name: {name}`; expected `name: {path.stem}`, the file's own.")
    return value


def _file(folder: str, name: str, kind: str) -> Path:
    files = _files(folder)
    if name not in files:
        hints = [f"See `emobench {folder} list`."] if folder in ("tasks", "suites") else []
        hints += [str(error) for error in tasks_plugins().values() if error is not None]
        raise UnknownNameError(kind, name, files, hint=" ".join(hints))
    return files[name]


def _files(folder: str) -> dict[str, Path]:
    """Return the YAML files of all tasks plugins, by path and name; two of one are an error that names both."""
    found: dict[str, Path] = {}
    roots = [root for plugin in _tasks_plugins().values() if isinstance(plugin, list) for root in plugin]
    for root in roots:
        for path in yaml_files(root / folder):
            name = path.relative_to(root / folder).with_suffix("").as_posix()
            if name in found:
                raise PluginError(f"Two plugins have {folder}/{name}.yaml: {found[name]} and {path}. Remove one.")
            found[name] = path
    return found


def tasks_plugins() -> dict[str, PluginError | None]:
    """Return the tasks plugins by name, with the error of each that cannot be used."""
    return {name: found if isinstance(found, PluginError) else None for name, found in _tasks_plugins().items()}


@cache
def _tasks_plugins() -> dict[str, list[Path] | PluginError]:
    found: dict[str, list[Path] | PluginError] = {}
    for name in sorted({point.name for point in entry_points(group=TASKS)}):
        try:
            found[name] = _folders(_load_plugin(TASKS, name, "tasks plugin"), name)
        except PluginError as error:
            found[name] = error
    return found


def _folders(module: ModuleType, name: str) -> list[Path]:
    folders = _call(module, "emobench_tasks", name)
    for folder in folders:
        if not (isinstance(folder, Path) and folder.is_dir()):
            raise PluginError(f"The plugin '{name}' returns {folder!r}; expected the pathlib.Path of a folder.")
    return folders


def _load_plugin(group: str, name: str, kind: str, hint: str = "") -> ModuleType:
    points = list(entry_points(group=group, name=name))
    if not points:
        raise UnknownNameError(kind, name, {p.name for p in entry_points(group=group)}, hint=hint)
    # A distribution that is installed and on the path is listed twice; it is the same plugin.
    if len({point.value for point in points}) > 1:
        owners = " and ".join(sorted(f"{_owner(point)} ({point.value})" for point in points))
        raise PluginError(f"Two plugins are named '{name}': {owners}. Uninstall one.")
    return _import(lambda: points[0].load(), f"The plugin '{name}' from {_owner(points[0])}")


def _brought(group: str, name: str) -> Mapping[str, str]:
    """Return the versions of what the distribution of a plugin brings."""
    points = list(entry_points(group=group, name=name))
    return brought_versions(points[0].dist) if points else {}


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown distribution"


def _import(load: Callable[[], T], label: str, does: str = "does not import", file: str | None = None) -> T:
    """Run a stranger's code; `file` is the user's own one that it is in, if it is."""
    try:
        return load()
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        # A class that breaks the contract says so in a sentence; anything else is named with its place.
        plain = isinstance(error, EmobenchError)
        reason = str(error) if plain else f"{type(error).__name__}: {error} ({_place(error, file)})"
        mend = "Mend it." if file else "Mend or uninstall it; others still work."
        raise PluginError(f"{label} {does}: {reason.rstrip('.')}. {mend}") from error


def _place(error: BaseException, file: str | None) -> str:
    """Return where an error arose: the last place in the user's own file, if it was on the way."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    at = [frame for frame in frames if frame.filename == file] or frames
    return f"{at[-1].filename}:{at[-1].lineno}"


def _call(module: ModuleType, hook: str, name: str) -> list[Any]:
    """Return what a plugin's implementations of a hook return."""
    manager = pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    try:
        manager.register(module)
    except pluggy.PluginValidationError as error:
        raise PluginError(f"The plugin '{name}' does not keep the contract: {error}") from None
    results = _import(getattr(manager.hook, hook), f"The plugin '{name}'", f"fails in its hook `{hook}`")
    if not results:
        raise PluginError(f"The plugin '{name}' implements no `{hook}`; mark it with @emobench.hookimpl.")
    return results


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _content(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None


def _objective_from_file(path: Path, attribute: str) -> type[Objective]:
    from emobench.objectives import Objective

    if not is_file(path):
        raise ConfigError(f"There is no file {path}; expected an objective as path.py:Class.")
    # The digest in the name keeps two files of one name apart, and an edited one from its old self.
    name = f"emobench_file_{hashlib.sha256(_content(path)).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _import(lambda: spec.loader.exec_module(module), f"The file {path}", file=spec.origin)  # type: ignore[union-attr]
    offered = {
        n: v
        for n, v in vars(module).items()
        if isinstance(v, type) and issubclass(v, Objective) and v.__module__ == name
    }
    if attribute not in offered:
        raise UnknownNameError("objective class", attribute, offered, where=f"{path}: ")
    check_concrete(offered[attribute], f"{path}:{attribute}")
    return offered[attribute]
