"""Names to tasks, suites, recipes and tables: the YAML of tasks plugins, read when a name is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from emobench.core.errors import ConfigError, PluginError, UnknownNameError
from emobench.core.family import call_hook, load_module, plugin_names
from emobench.core.reading import expand_home
from emobench.core.settings import Located, build, convert
from emobench.data.local_files import placed_data
from emobench.registry.families import kind_names, load_kind
from emobench.tasks.rules import Rules, changed_rules, identifying_rules, override
from emobench.tasks.spec import BY_KIND, Suite, SuiteRun, Task, TaskFile, short_name
from emobench.tasks.table import Table
from emobench.tasks.yaml import ENDINGS, read_yaml, yaml_files

if TYPE_CHECKING:
    from emobench.training.recipe import Recipe

TASKS = "emobench.tasks"
"""The group of the entry points of tasks plugins, whose hook `emobench_tasks` returns a folder.

The folder has YAML in `tasks`, `suites`, `recipes` and `tables`; a file is read when its name is requested.
"""
DEFAULT_RECIPE = "lm-finetune"
"""How to train where neither a suite nor an option names a recipe."""
T = TypeVar("T")


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
    """Read a task by its name or from a file, with one of its protocols (the first unless named) and overridden rules.

    All protocols are built, so that a mistake in one that is not used shows, too.
    """
    path = _file("tasks", name, "task")
    data = read_yaml(path)
    file, where = build(TaskFile, data, data.where()), data.where()
    _named(file, file.name, path)
    if file.kind not in kind_names():
        raise UnknownNameError("kind of task", file.kind, kind_names(), where=f"{data.where('kind')}: ")
    kind = load_kind(file.kind)
    source, other = ("dataset", "corpus") if kind.reads == "dataset" else ("corpus", "dataset")
    if not getattr(file, source):
        raise ConfigError(f"{where}: `{source}` is missing; give it a value.")
    if getattr(file, other):
        raise ConfigError(f"{where}: `{other}` is not read by a task of kind {file.kind}; drop it.")
    if not file.protocols:
        raise ConfigError(f"{data.where('protocols')}: the task has no protocol; give at least one.")
    chosen = protocol or next(iter(file.protocols))
    if chosen not in file.protocols:
        raise UnknownNameError("protocol", chosen, file.protocols, where=f"Task {file.name}: ")
    built: dict[str, Rules] = {}
    for own, given in file.protocols.items():
        built[own] = build(kind.rules, given or {}, data.where("protocols"))
        place = given if isinstance(given, Located) else data
        kind.check_rules(built[own], file.dataset, f"{place.where()}: task {file.name}")
    rules = override(built[chosen], overrides or {}, f"--set {file.kind}")
    kind.check_rules(rules, file.dataset, f"--set {file.kind}: task {file.name}")
    changes = changed_rules(identifying_rules(built[chosen]), identifying_rules(rules))
    dataset = file.dataset
    if dataset is not None and dataset.path:
        dataset = replace(dataset, path=str((path.parent / expand_home(dataset.path)).absolute()))
    corpus = dataset.name if dataset else placed_data(file.corpus, path.parent)
    return Task(
        name=file.name,
        kind=file.kind,
        version=file.version,
        corpus=corpus,
        protocol_name=chosen,
        protocol=rules,
        description=file.description,
        dataset=dataset,
        changes=changes,
    )


def protocol_names(task: str) -> list[str]:
    """Return the names of a task's protocols."""
    return list(read_yaml(_file("tasks", task, "task")).get("protocols") or ())


def find_suite(name: str) -> Suite:
    """Read a suite by its name, or from a file: that of a suite, or that of a task, which makes a suite of its own."""
    path = _file("suites", name, "suite")
    data = read_yaml(path)
    is_file = name.endswith(ENDINGS)
    if is_file and "kind" in data and "runs" not in data:
        task = find_task(name)
        settings = {} if task.dataset else {"corpus": task.corpus}
        run = SuiteRun(recipe=DEFAULT_RECIPE, tasks=(str(path),), settings=settings)
        return Suite(name=task.name, version=task.version, runs=(run,), description=task.description)
    runs = data.get("runs")
    if isinstance(runs, list):  # `build` refuses what else there is
        for run in runs:
            if not isinstance(run, Located) or not isinstance(run.get("tasks", []), list):
                continue
            _name_by_kind(run)
            if is_file:
                _place_files(run, path.parent)
    suite = build(Suite, data, str(path))
    return _named(suite, suite.name, path)


def find_recipe(name: str, *overrides: Mapping[str, Any]) -> Recipe:
    """Read a recipe and apply overrides, in order."""
    from emobench.training.recipe import Recipe

    path = _file("recipes", name, "recipe")
    recipe = _named(build(Recipe, data := read_yaml(path), str(path)), data.get("name"), path)
    recipe = replace(recipe, corpus=placed_data(recipe.corpus, path.parent))
    for changes in overrides:
        if isinstance(changes.get("trainer"), Mapping):  # single arguments change, and the others stay
            changes = {**changes, "trainer": {**(recipe.trainer or {}), **changes["trainer"]}}
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
    if name.endswith(ENDINGS):
        path = expand_home(name)
        if not path.is_file():
            raise ConfigError(f"There is no file {path}; expected the YAML of a {kind}.")
        if path.stem in map(short_name, files):  # an installed name means one thing
            raise ConfigError(
                f"{path} has the name of an installed {kind}, so entries could not distinguish them. Give the file and "
                "the `name` in it another name."
            )
        return path
    if name not in files:
        hints = []
        if folder in ("tasks", "suites"):
            hints.append(f"See `emobench {folder} list`.")
        if Path(f"{name}.yaml").is_file():
            hints.append(f"For the file in this folder, give ./{name}.yaml.")
        hints += map(str, filter(None, tasks_plugins().values()))
        raise UnknownNameError(kind, name, files, hint=" ".join(hints))
    return files[name]


def _files(folder: str) -> dict[str, Path]:
    """Return the YAML files of all tasks plugins, by their names in a folder. PluginError if two have one name."""
    files: dict[str, Path] = {}
    for roots in _tasks_plugins().values():
        if isinstance(roots, PluginError):
            continue
        for root in roots:
            for name, path in yaml_files(root / folder).items():
                if name in files:
                    raise PluginError(f"Two plugins have {folder}/{name}.yaml: {files[name]} and {path}. Remove one.")
                files[name] = path
    return files


def tasks_plugins() -> dict[str, PluginError | None]:
    """Return the tasks plugins by name, with the error of each that cannot be used."""
    errors: dict[str, PluginError | None] = {}
    for name, folders in _tasks_plugins().items():
        errors[name] = folders if isinstance(folders, PluginError) else None
    return errors


@cache
def _tasks_plugins() -> dict[str, list[Path] | PluginError]:
    """Return the folders of each tasks plugin, or its error."""
    plugins: dict[str, list[Path] | PluginError] = {}
    for name in plugin_names(TASKS):
        try:
            plugins[name] = folders = call_hook(load_module(TASKS, name, "tasks plugin"), "emobench_tasks", name)
            for folder in folders:
                if not (isinstance(folder, Path) and folder.is_dir()):
                    raise PluginError(f"The plugin '{name}' returns {folder!r}; expected the pathlib.Path of a folder.")
        except PluginError as error:
            plugins[name] = error
    return plugins


def _place_files(run: Located, folder: Path) -> None:
    """Take the files that a run of a suite names from the suite's own folder."""

    def placed(name: Any) -> Any:
        return str(folder / expand_home(name)) if isinstance(name, str) and name.endswith(ENDINGS) else name

    settings = run.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("corpus"), str):
        settings["corpus"] = placed_data(settings["corpus"], folder)
    if "recipe" in run:
        run["recipe"] = placed(run["recipe"])
    run["tasks"] = list(map(placed, run.get("tasks", [])))


def _name_by_kind(run: Located) -> None:
    """Add the tasks that a suite's run lists under their kind to its tasks: `lm_eval: [hellaswag]`."""
    for kind in kind_names():
        if kind in run:
            prefix = kind.replace("_", "-") + BY_KIND
            names = convert(tuple[str, ...], run.pop(kind), f"{run.where(kind)}: `{kind}`")
            run["tasks"] = [*run.get("tasks", []), *(prefix + name for name in names)]
