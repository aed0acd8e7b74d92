"""The names of a request: to its suite, objectives, recipes and tasks, with what `--set` changes in them.

Nothing is read here but plugins and their YAML: no model, no corpus, no data set.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.settings import PRETRAINED, build, to_plain
from emobench.kinds.interface import Kind
from emobench.kinds.views import LabelPrompts
from emobench.registry import (
    LoadedObjective,
    find_recipe,
    find_suite,
    find_task,
    kind_of_name,
    kinds_with,
    load_kind,
    load_objective,
    protocol_names,
    task_names,
    usable_kinds,
)
from emobench.runs.planning.request import Recorded, Request
from emobench.tasks.rules import not_identifying
from emobench.tasks.spec import Suite, SuiteRun, Task, short_name
from emobench.training.recipe import Recipe

MOST_STAGES = 20_000
"""Trainings and evaluations of a plan."""
LOCAL = "local"
"""An entry has this in place of a folder's name."""


def suite_of(request: Request) -> Suite:
    """Return the suite of a request; a recipe alone is a suite without tasks."""
    if request.suite is not None:
        return find_suite(request.suite)
    assert request.recipe is not None
    recipe = find_recipe(request.recipe)
    return Suite(name=recipe.name, version=1, runs=(SuiteRun(recipe=recipe.name, tasks=()),))


def model_of(request: Request, suite: Suite) -> str:
    """Return the model's name."""
    name = request.model or suite.model
    if name is None:
        raise ConfigError(f"{suite.name} names no model of its own; add --model NAME, see `emobench models list`.")
    return name


def objectives_of(request: Request, suite: Suite) -> list[LoadedObjective | None]:
    """Return the objectives, None for a model as it is; each once."""
    wanted = request.objectives or suite.objectives
    if not wanted:
        raise ConfigError(
            f"{suite.name} names no objective of its own; add --objective NAME, see `emobench objectives list`."
        )
    seeds = len(request.seeds or suite.seeds)
    stages = len(wanted) * seeds * sum(1 + len(run.tasks) for run in suite.runs)
    if stages > MOST_STAGES:  # each stage's key is a hash of all that decides it: the plan would take minutes
        raise ConfigError(
            f"{len(wanted):,} objectives with {seeds:,} seeds on the suite {suite.name} are {stages:,} trainings and "
            f"evaluations; expected {MOST_STAGES:,} at most. Give fewer at once: finished ones are kept."
        )
    settings = request.section("objective")
    if settings and len(wanted) != 1:
        raise ConfigError(
            "--set objective.* needs exactly one --objective; with several, give parameters inline: "
            '--objective "tailr(gamma=0.2)".'
        )
    if settings and wanted == (PRETRAINED,):
        raise ConfigError(f"--set objective.*: '{PRETRAINED}' is a model as it is and has no parameters; drop it.")
    if request.from_scratch and PRETRAINED in wanted:
        raise ConfigError(f"--from-scratch draws weights at random, and '{PRETRAINED}' is a model as it is; give one.")
    objectives: list[LoadedObjective | None] = []
    rows: set[tuple[str, str]] = set()
    for text in wanted:
        loaded = None if text == PRETRAINED else load_objective(text, settings)
        row = (PRETRAINED, "") if loaded is None else (repr(loaded.objective), loaded.source_sha256)
        if row in rows:
            raise ConfigError(f"--objective {row[0]} is given twice; give each once, or with other parameters.")
        rows.add(row)
        objectives.append(loaded)
    return objectives


def parts_of(request: Request, suite: Suite) -> list[tuple[Recipe, list[Task]]]:
    """Return the recipes of a suite, each with those of its tasks that the request wants."""
    if request.recorded is not None:
        return recorded_parts(request, suite, request.recorded)
    wanted, places = request.words("tasks"), list[str]()
    for run in suite.runs:
        places += run.tasks
    known = [short_name(name) for name in places]
    for name in wanted or ():
        if name in known:
            continue
        if name in task_names():
            raise ConfigError(
                f"--set tasks: {name} is a task, but none of the suite {suite.name}, which has {', '.join(known)}. "
                "Write a suite with it, as docs/guides/tasks.md shows."
            )
        raise UnknownNameError("task", name, known, where=f"Suite {suite.name}: ")
    chosen = [name for name in places if wanted is None or short_name(name) in wanted]
    tasks = {name: _task_in(request, name, chosen) for name in chosen}
    parts = []
    for run in suite.runs:
        evaluated = [tasks[name] for name in run.tasks if name in tasks]
        if evaluated or wanted is None:  # the request has no training that evaluates none of its tasks
            parts.append((recipe_of(request, run.recipe, run.settings), evaluated))
    return parts


def _task_in(request: Request, name: str, chosen: Sequence[str]) -> Task:
    """Return a task among others; where it has no such protocol, the error names those that have it."""
    try:
        return task_of(request, name)
    except UnknownNameError as error:
        protocol = request.word("protocol")
        able = [other for other in chosen if other in task_names() and protocol in protocol_names(other)]
        if protocol is None or name in able or not able:
            raise
        raise ConfigError(f"{error} These tasks have it: --set tasks={','.join(map(short_name, able))}.") from None


def check_sections(request: Request, parts: Sequence[tuple[Recipe, Sequence[Task]]], *, trains: bool) -> None:
    """Raise ConfigError for a setting that nothing reads: it is a slip, not a wish."""
    kinds: dict[str, Kind] = {}
    for _, tasks in parts:
        kinds |= {task.kind: load_kind(task.kind) for task in tasks}
    used, groups, known = set[str](), dict[str, None](), dict[str, None]()
    for kind in kinds.values():
        used |= {kind.name, *kind.groups}
    for kind in usable_kinds():
        known[kind.name] = None
        groups |= dict.fromkeys(kind.groups)
    if "recipe" in request.settings and not trains:
        raise ConfigError("--set recipe.*: nothing is trained, so that it would change nothing; drop it.")
    for name in (*known, *groups):
        if name in request.settings and name not in used:
            why = f"no task here has rules of '{name}'" if name in groups else f"no task here is of kind '{name}'"
            raise ConfigError(f"--set {name}.*: {why}, so that it would change nothing; drop it.")
    if request.word("corpus") is not None and not trains and not any(kind.any_corpus for kind in kinds.values()):
        raise ConfigError("--set corpus: nothing is trained and no task reads a corpus of choice; drop it.")


def recipe_of(request: Request, name: str, settings: Mapping[str, Any]) -> Recipe:
    """Return a recipe with a suite's settings and the request's; `precision` is resolved for the device."""
    changes = dict(request.section("recipe"))
    corpus = request.word("corpus")
    if corpus is not None:
        if "corpus" in changes:
            raise ConfigError("--set corpus and --set recipe.corpus are both given; keep one.")
        changes["corpus"] = corpus
    if "name" in changes:
        raise ConfigError("--set recipe.name: the suite names the recipe; set the recipe's values instead.")
    return find_recipe(name, settings, changes).resolved(request.device, request.dtype)


def task_of(request: Request, name: str) -> Task:
    """Return a task with the request's protocol, overridden rules and limit."""
    if named := kind_of_name(name):
        kind, make = named
        return make(rule_changes(request, kind))
    kind = load_kind(find_task(name).kind)
    changes, protocol = rule_changes(request, kind), request.word("protocol")
    task = find_task(name, protocol=protocol, overrides=changes)
    fitting = kind.fitting(task.protocol, changes, request.limit)
    if fitting != changes:
        task = find_task(name, protocol=protocol, overrides=fitting)
    corpus = request.word("corpus")
    return replace(task, corpus=corpus) if corpus is not None and kind.any_corpus else task


def labelled_task_of(request: Request, name: str) -> Task:
    """Return a task whose prompts end in labels, for what shows them and trains nothing; else raise ConfigError."""
    task = task_of(request, name)
    if load_kind(task.kind).view(LabelPrompts) is None:
        able = " or ".join(kinds_with(LabelPrompts))
        raise ConfigError(
            f"Task {name} is of kind {task.kind}, and has no prompts with labels; expected one of kind {able}, see "
            "`emobench tasks list`."
        )
    if unread := sorted(request.settings.keys() - {task.kind, "protocol"}):
        raise ConfigError(f"--set {unread[0]}: a prompt is decided by {task.kind}.* and protocol alone; drop it.")
    return task


def recorded_parts(request: Request, suite: Suite, recorded: Recorded) -> list[tuple[Recipe, list[Task]]]:
    """Return the recipes of a suite, each with its recorded tasks.

    Raises ConfigError where a task is gone, or where its rules or the trainings are not the recorded ones here.
    """
    known: list[str] = []
    for run in suite.runs:
        known += map(short_name, run.tasks)
    if gone := sorted(recorded.protocols.keys() - set(known)):
        raise ConfigError(
            f"The entry has the task {gone[0]}, and the suite {suite.name} v{suite.version} has not: "
            f"{', '.join(known)}. Install the emobench that recorded it."
        )
    parts: list[tuple[SuiteRun, list[Task]]] = []
    for run in suite.runs:
        names = [name for name in run.tasks if short_name(name) in recorded.protocols]
        # A training that evaluates none of the recorded tasks was not made, if there are fewer of them.
        if names or len(recorded.recipes) == len(suite.runs):
            parts.append((run, [_task(request, name, recorded) for name in names]))
    if recorded.recipes:
        recipes = [build(Recipe, values, "the entry's recipe") for values in recorded.recipes]
    else:
        recipes = [find_recipe(run.recipe, run.settings) for run, _ in parts]
    names, own = [recipe.name for recipe in recipes], [short_name(run.recipe) for run, _ in parts]
    if names != own and recorded.recipes:
        raise ConfigError(
            f"The entry trained by {', '.join(names)}, and its suite now by {', '.join(own)}. Install the emobench "
            "that recorded it."
        )
    return [(recipe, tasks) for recipe, (_, tasks) in zip(recipes, parts, strict=True)]


def _task(request: Request, name: str, recorded: Recorded) -> Task:
    own = short_name(name)
    protocol, changes = recorded.protocols[own].partition("@")[0], recorded.changes.get(own, {})
    if named := kind_of_name(name):
        kind, make = named
        task = make(_rules(request, kind, own, changes))
    else:
        kind = load_kind(find_task(name, protocol=protocol).kind)
        task = find_task(name, protocol=protocol, overrides=_rules(request, kind, own, changes))
    if task.protocol_id != recorded.protocols[own]:
        raise ConfigError(
            f"Task {own} has the protocol {task.protocol_id} here, and {recorded.protocols[own]} in the entry: its "
            "file, or what --set gives, has other rules. Install the emobench that recorded it."
        )
    return replace(task, corpus=recorded.corpora[own]) if own in recorded.corpora else task


def _rules(request: Request, kind: Kind, task: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry's rules for a task, with the folders in them that the user gives."""
    _require_identifying(task, kind, changes)
    rules = nested_rules(changes, rule_changes(request, kind))
    for name, value in changes.items():
        if value == LOCAL and functools.reduce(lambda place, part: place[part], name.split("."), rules) == LOCAL:
            raise ConfigError(
                f"Task {task}: the entry's rule {name} was a folder, whose name it does not tell. Give it: --set "
                f"{kind.name}.{name}=FOLDER"
            )
    return rules


def _require_identifying(task: str, kind: Kind, changes: Mapping[str, Any]) -> None:
    """Raise ConfigError for a rule that no protocol's id has, and so no entry: a folder of code, a judge's address."""
    for name, value in changes.items():
        rules = [name]
        if isinstance(value, Mapping):
            rules += [f"{name}.{key}" for key in value]
        for rule in rules:
            if rule in not_identifying(kind.rules):
                raise ConfigError(
                    f"Task {task}: the entry has the rule {rule}, which is the user's to give and is in no entry of "
                    "emobench. It was altered; take another one."
                )


def nested_rules(changes: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return rules by their dotted names as nested ones, with what the user gives of them.

    Raises ConfigError for a rule within another one.
    """
    nested: dict[str, Any] = {}
    for name, value in changes.items():
        *groups, last = name.split(".")
        place = nested
        for depth, group in enumerate(groups, 1):
            if (outer := ".".join(groups[:depth])) in changes:
                raise ConfigError(f"The entry has the rules {outer} and {name}; expected one of them.")
            place = place.setdefault(group, {})
        place[last] = value
    return _merged(nested, to_plain(given))


def _merged(base: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in given.items():
        within = base.get(name)
        base[name] = _merged(within, value) if isinstance(within, dict) and isinstance(value, Mapping) else value
    return base


def rule_changes(request: Request, kind: Kind) -> dict[str, Any]:
    """Return what `--set` and `--limit` change in tasks of a kind: generation.mauve.seeds, and likewise mauve.seeds."""
    changes = dict(request.section(kind.name))
    for group in kind.groups:
        if given := request.section(group):
            within = changes.get(group, {})
            if not isinstance(within, Mapping) or within.keys() & given.keys():
                raise ConfigError(f"--set {group}.{min(given)} and --set {kind.name}.{group} are both given; keep one.")
            changes[group] = {**within, **given}
    kind.check_consent(changes, request.trust_remote_code)
    return changes if request.limit is None else {**changes, "limit": request.limit}
