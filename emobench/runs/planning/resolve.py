"""The names of a request: to its suite, objectives, recipes and tasks, with what `--set` changes in them.

Nothing is read here but plugins and their YAML: no model, no corpus, no data set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.core.settings import PRETRAINED, build, to_plain
from emobench.kinds.interface import Kind
from emobench.kinds.views import LabelPrompts
from emobench.registry import (
    LoadedObjective,
    declared_objective,
    find_recipe,
    find_suite,
    find_task,
    kind_of_name,
    kinds_with,
    load_kind,
    load_objective,
)
from emobench.runs.planning.request import Request
from emobench.tasks.rules import not_identifying, rule_groups
from emobench.tasks.spec import Suite, SuiteRun, Task, short_name
from emobench.training.recipe import Recipe

MOST_STAGES = 20_000
"""Trainings and evaluations of a plan."""
Values = Mapping[str, Any]
"""Settings or rules by name; those of a section are nested."""
Parts = list[tuple[Recipe, list[Task]]]
"""The recipes of a suite, each with its tasks."""
LOCAL = "local"
"""An entry has this in place of a folder's name."""


def suite_of(request: Request) -> Suite:
    """Return the suite of a request; a recipe alone is a suite without tasks."""
    if request.suite is not None:
        return find_suite(request.suite)
    assert request.recipe is not None
    recipe = find_recipe(request.recipe)
    return Suite(name=recipe.name, version=1, runs=(SuiteRun(recipe=recipe.name, tasks=()),))


def objectives_of(request: Request, suite: Suite) -> list[LoadedObjective | None]:
    """Return the objectives, None for a model as it is; each once."""
    wanted = request.objectives or suite.objectives
    if not wanted:
        raise ConfigError(
            f"{suite.name} names no objective of its own; add --objective NAME, see `emobench objectives list`."
        )
    stages = len(wanted) * len(request.seeds or suite.seeds) * sum(1 + len(run.tasks) for run in suite.runs)
    if stages > MOST_STAGES:  # each stage's key is a hash of all that decides it: the plan would take minutes
        raise ConfigError(
            f"The suite {suite.name} with so many objectives and seeds has {stages:,} trainings and evaluations; "
            f"expected {MOST_STAGES:,} at most. Give fewer at once: finished ones are kept."
        )
    settings = request.section("objective")
    if settings and (len(wanted) != 1 or wanted == (PRETRAINED,)):
        raise ConfigError(
            "--set objective.* needs exactly one --objective that is trained; with several, give parameters inline: "
            '--objective "tailr(gamma=0.2)".'
        )
    if request.from_scratch and PRETRAINED in wanted:
        raise ConfigError(f"--from-scratch draws weights at random, and '{PRETRAINED}' is a model as it is; give one.")
    objectives: list[LoadedObjective | None] = []
    rows: set[tuple[str, str]] = set()
    load = declared_objective if request.declared else load_objective
    for text in wanted:
        loaded, row = None, (PRETRAINED, "")
        if text != PRETRAINED:
            loaded = load(text, settings)
            row = (repr(loaded.objective), loaded.source_sha256)
        if row in rows:
            raise ConfigError(f"--objective {row[0]} is given twice; give each once, or with other parameters.")
        rows.add(row)
        objectives.append(loaded)
    return objectives


def parts_of(request: Request, suite: Suite) -> Parts:
    """Return the recipes of a suite, each with those of its tasks that the request wants, or that an entry recorded.

    Raises UserError for a task that the suite lacks, and for recorded rules or trainings that differ from those here.
    """
    recorded, wanted = request.recorded, request.words("tasks")
    if recorded is not None:
        wanted = tuple(recorded.protocols)
    known: list[str] = []
    for run in suite.runs:
        known += map(short_name, run.tasks)
    for name in wanted or ():
        if name not in known:
            raise UnknownNameError("task", name, known, where=f"Suite {suite.name} v{suite.version}: ")
    parts: list[tuple[SuiteRun, list[Task]]] = []
    for run in suite.runs:
        names = [name for name in run.tasks if wanted is None or short_name(name) in wanted]
        # The request has no training that evaluates none of its tasks; an entry has one if it recorded all of them.
        if names or wanted is None or (recorded is not None and len(recorded.recipes) == len(suite.runs)):
            parts.append((run, [task_of(request, name) for name in names]))
    if recorded is None:
        recipes = [recipe_of(request, run.recipe, run.settings) for run, _ in parts]
    elif recorded.recipes:
        recipes = [build(Recipe, values, "the entry's recipe") for values in recorded.recipes]
        names, own = [recipe.name for recipe in recipes], [short_name(run.recipe) for run, _ in parts]
        if names != own:
            raise ConfigError(
                f"The entry trained by {', '.join(names)}, and its suite now by {', '.join(own)}. Install the emobench "
                "that recorded it."
            )
    else:
        recipes = [find_recipe(run.recipe, run.settings) for run, _ in parts]
    return [(recipe, tasks) for recipe, (_, tasks) in zip(recipes, parts, strict=True)]


def check_sections(request: Request, parts: Parts, *, trains: bool) -> None:
    """Raise ConfigError for a setting that nothing reads: it is a slip, not a wish."""
    read, corpus = {"objective", "tasks", "protocol"}, trains
    for _, tasks in parts:
        for task in tasks:
            kind = load_kind(task.kind)
            read |= {kind.name, *rule_groups(kind.rules)}
            corpus = corpus or kind.reads == "any corpus"
    if trains:
        read.add("recipe")
    if corpus:
        read.add("corpus")
    if unread := sorted(request.settings.keys() - read):
        raise ConfigError(f"--set {unread[0]}: no task or training of this command has such rules; drop it.")


def recipe_of(request: Request, name: str, settings: Values) -> Recipe:
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
    """Return a task with the request's protocol, overridden rules and limit, or with those that an entry recorded."""
    recorded, own = request.recorded, short_name(name)
    named = kind_of_name(name)
    kind = named[0] if named else load_kind(find_task(name).kind)
    protocol, changes = request.word("protocol"), rule_changes(request, kind)
    if recorded is not None:
        protocol = recorded.protocols[own].partition("@")[0]
        changes = _recorded_rules(kind, own, recorded.changes.get(own, {}), changes)
    if named:
        task = named[1](changes)
    else:
        task = find_task(name, protocol=protocol, overrides=changes)
        fitting = kind.fitting(task.protocol, changes, request.limit)
        if fitting != changes:
            task = find_task(name, protocol=protocol, overrides=fitting)
    corpus = request.word("corpus") if kind.reads == "any corpus" else None
    if recorded is not None:
        corpus = recorded.corpora.get(own)
        if task.protocol_id != recorded.protocols[own]:
            raise ConfigError(
                f"Task {own} has the protocol {task.protocol_id} here, and {recorded.protocols[own]} in the entry: its "
                "file, or what --set gives, has other rules. Install the emobench that recorded it."
            )
    return task if corpus is None else replace(task, corpus=corpus)


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


def _recorded_rules(kind: Kind, task: str, changes: Values, given: Values) -> Values:
    """Return an entry's rules for a task, with the folders in them that the user gives.

    Raises ConfigError for a rule that no entry of emobench has: a folder of code, a judge's address.
    """
    rules = nested_rules(changes, given)
    for name, value in changes.items():
        nested = [f"{name}.{key}" for key in value] if isinstance(value, Mapping) else []
        for rule in (name, *nested):
            if rule in not_identifying(kind.rules):
                raise ConfigError(
                    f"Task {task}: the entry has the rule {rule}, which only the user gives; take another."
                )
        place: Any = rules
        for part in name.split("."):
            place = place[part]
        if value == LOCAL == place:
            raise ConfigError(
                f"Task {task}: the entry's rule {name} was a folder, whose name it does not tell. Give it: --set "
                f"{kind.name}.{name}=FOLDER"
            )
    return rules


def nested_rules(changes: Values, given: Values) -> Values:
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
    return merged(nested, to_plain(given))


def merged(below: Values, above: Values) -> dict[str, Any]:
    """Return nested settings of both; `above` wins."""
    both = dict(below)
    for name, value in above.items():
        within = both.get(name)
        if isinstance(within, Mapping) and isinstance(value, Mapping):
            value = merged(within, value)
        both[name] = value
    return both


def rule_changes(request: Request, kind: Kind) -> Values:
    """Return what `--set` and `--limit` change in tasks of a kind: generation.mauve.seeds, and likewise mauve.seeds."""
    changes = dict(request.section(kind.name))
    for group in rule_groups(kind.rules):
        if given := request.section(group):
            within = changes.get(group, {})
            if not isinstance(within, Mapping) or within.keys() & given.keys():
                raise ConfigError(f"--set {group}.{min(given)} and --set {kind.name}.{group} are both given; keep one.")
            changes[group] = {**within, **given}
    return changes if request.limit is None else {**changes, "limit": request.limit}
