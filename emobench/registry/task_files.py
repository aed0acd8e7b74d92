"""Names to tasks, suites, recipes and tables: the YAML of tasks plugins, read when a name is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from emobench.core.errors import ConfigError, PluginError, UnknownNameError
from emobench.core.family import call_hook, load_module, plugin_names
from emobench.core.reading import expand_home
from emobench.core.settings import Located, build, convert
from emobench.registry.families import kind_names, kind_of_file
from emobench.tasks.rules import override
from emobench.tasks.spec import BY_KIND, Suite, SuiteRun, Task, short_name, task_from
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
    """Read a task by its name or from a file, with one of its protocols and overridden rules."""
    path = _file("tasks", name, "task")
    task = task_from(read_yaml(path), kind_of_file, protocol=protocol, overrides=overrides)
    return _named(task, task.name, path)


def protocol_names(task: str) -> list[str]:
    """Return the names of a task's protocols."""
    return list(read_yaml(_file("tasks", task, "task")).get("protocols") or ())


def find_suite(name: str) -> Suite:
    """Read a suite by its name, or from a file: "./my-suite.yaml", or a task's, which is a suite of that task."""
    path = _file("suites", name, "suite")
    data = read_yaml(path)
    if name.endswith(ENDINGS) and "kind" in data and "runs" not in data:
        return _suite_of_task(find_task(name), path)
    _name_by_kind(data)
    if name.endswith(ENDINGS):
        _place_files(data, path.parent)
    suite = build(Suite, data, str(path))
    return _named(suite, suite.name, path)


def _suite_of_task(task: Task, path: Path) -> Suite:
    """Return the suite of one task of the user's, trained on the corpus of the task if it has one."""
    settings = {} if task.dataset else {"corpus": task.corpus}
    run = SuiteRun(recipe=DEFAULT_RECIPE, tasks=(str(path),), settings=settings)
    return Suite(name=task.name, version=task.version, runs=(run,), description=task.description)


def find_recipe(name: str, *overrides: Mapping[str, Any]) -> Recipe:
    """Read a recipe and apply overrides, in order."""
    from emobench.training.recipe import Recipe

    path = _file("recipes", name, "recipe")
    recipe = _named(build(Recipe, data := read_yaml(path), str(path)), data.get("name"), path)
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
        return _own_file(files, name, kind)
    if name not in files:
        hints = [f"See `emobench {folder} list`."] if folder in ("tasks", "suites") else []
        hints += [str(error) for error in tasks_plugins().values() if error is not None]
        raise UnknownNameError(kind, name, files, hint=" ".join(hints))
    return files[name]


def _own_file(files: Mapping[str, Path], name: str, kind: str) -> Path:
    """Return a file of the user's. An installed name means one thing: entries know a suite and a task by it."""
    path = expand_home(name)
    if not path.is_file():
        raise ConfigError(f"There is no file {path}; expected the YAML of a {kind}.")
    if path.stem in {short_name(known) for known in files}:
        raise ConfigError(
            f"{path} has the name of an installed {kind}, and entries would not tell them apart. Give the file and the "
            "`name` in it another name."
        )
    return path


def _files(folder: str) -> dict[str, Path]:
    """Return the YAML files of all tasks plugins, by path and name; two of one are an error that names both."""
    found: dict[str, Path] = {}
    roots = [root for plugin in _tasks_plugins().values() if isinstance(plugin, list) for root in plugin]
    for root in roots:
        for name, path in yaml_files(root / folder).items():
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
    for name in plugin_names(TASKS):
        try:
            found[name] = _folders(load_module(TASKS, name, "tasks plugin"), name)
        except PluginError as error:
            found[name] = error
    return found


def _folders(module: ModuleType, name: str) -> list[Path]:
    folders = call_hook(module, "emobench_tasks", name)
    for folder in folders:
        if not (isinstance(folder, Path) and folder.is_dir()):
            raise PluginError(f"The plugin '{name}' returns {folder!r}; expected the pathlib.Path of a folder.")
    return folders


def _place_files(suite: Located, folder: Path) -> None:
    """Take the files that a user's suite names from the suite's own folder."""
    for run in suite.get("runs") or () if isinstance(suite.get("runs"), list) else ():
        if isinstance(run, Located):
            if isinstance(run.get("recipe"), str):
                run["recipe"] = _placed(run["recipe"], folder)
            if isinstance(run.get("tasks"), list):
                run["tasks"] = [_placed(name, folder) for name in run["tasks"]]


def _placed(name: Any, folder: Path) -> Any:
    return str(folder / expand_home(name)) if isinstance(name, str) and name.endswith(ENDINGS) else name


def _name_by_kind(suite: Located) -> None:
    """Add the tasks that a suite's run lists under their kind to its tasks: `lm_eval: [hellaswag]`."""
    for run in suite.get("runs") or () if isinstance(suite.get("runs"), list) else ():
        for kind in kind_names():
            if isinstance(run, Located) and kind in run and isinstance(run.get("tasks", []), list):
                names = convert(tuple[str, ...], run[kind], f"{run.where(kind)}: `{kind}`")
                del run[kind]
                run["tasks"] = [*run.get("tasks", []), *(kind.replace("_", "-") + BY_KIND + name for name in names)]
