"""The trainings and tasks of an entry that is repeated: made of what it records, not of a suite's files or options."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from emobench.core.errors import ConfigError
from emobench.core.settings import build, to_plain
from emobench.kinds.interface import Kind
from emobench.registry import find_recipe, find_task, kind_of_name, load_kind
from emobench.runs.planning.request import Recorded, Request
from emobench.runs.planning.rule_changes import rule_changes
from emobench.tasks.rules import not_identifying
from emobench.tasks.spec import Suite, SuiteRun, Task, short_name
from emobench.training.recipe import Recipe

LOCAL = "local"
"""What an entry has in the place of a folder's name."""


def recorded_parts(request: Request, suite: Suite, recorded: Recorded) -> list[tuple[Recipe, list[Task]]]:
    """Return the recipes of a suite, each with its recorded tasks.

    Raises ConfigError where a task is gone, or where its rules or the trainings are not the recorded ones here.
    """
    known = [short_name(name) for run in suite.runs for name in run.tasks]
    if gone := sorted(recorded.protocols.keys() - set(known)):
        raise ConfigError(
            f"The entry has the task {gone[0]}, and the suite {suite.name} v{suite.version} has not: "
            f"{', '.join(known)}. Install the emobench that recorded it."
        )
    parts = [(run, [n for n in run.tasks if short_name(n) in recorded.protocols]) for run in suite.runs]
    if len(recorded.recipes) != len(parts):  # a training that evaluates none of the wanted tasks is not made
        parts = [(run, names) for run, names in parts if names]
    recipes = _recipes([run for run, _ in parts], recorded)
    tasks = ([_task(request, name, recorded) for name in names] for _, names in parts)
    return list(zip(recipes, tasks, strict=True))


def _recipes(runs: Sequence[SuiteRun], recorded: Recorded) -> list[Recipe]:
    if not recorded.recipes:
        return [find_recipe(run.recipe, run.settings) for run in runs]
    found = [build(Recipe, values, "the entry's recipe") for values in recorded.recipes]
    names, own = [recipe.name for recipe in found], [short_name(run.recipe) for run in runs]
    if names != own:
        raise ConfigError(
            f"The entry trained by {', '.join(names)}, and its suite now by {', '.join(own)}. Install the emobench "
            "that recorded it."
        )
    return found


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
    found = nested_rules(changes, rule_changes(request, kind))
    for name, value in changes.items():
        if value == LOCAL and functools.reduce(lambda place, part: place[part], name.split("."), found) == LOCAL:
            raise ConfigError(
                f"Task {task}: the entry's rule {name} was a folder, whose name it does not tell. Give it: --set "
                f"{kind.name}.{name}=FOLDER"
            )
    return found


def _require_identifying(task: str, kind: Kind, changes: Mapping[str, Any]) -> None:
    """Raise ConfigError for a rule that no protocol's id has, and so no entry: a folder of code, a judge's address."""
    for name, value in changes.items():
        inner = [f"{name}.{key}" for key in value] if isinstance(value, Mapping) else []
        for rule in (name, *inner):
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
