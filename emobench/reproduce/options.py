"""An entry as the options of `emobench run`, in TOML: the file plans the trainings and evaluations that it records."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from emobench.core.errors import ConfigError
from emobench.core.settings import dotted_settings, parse_overrides, to_plain
from emobench.leaderboard.entry import Entry
from emobench.registry import load_kind
from emobench.reproduce.rerun import request_of
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import Parts, parts_of, suite_of
from emobench.tasks.rules import rule_groups


def options_file(entry: Entry) -> str:
    """Return the TOML of `emobench run FILE.toml` that repeats an entry.

    Raises a UserError for an entry that `emobench rerun` refuses, and for one whose trainings or tasks differ in ways
    that options cannot give.
    """
    given = Request(suite=entry.suite.name)
    if entry.model.source == "local folder":
        given = replace(given, model=entry.model.name)
    recorded = request_of(entry, given)
    suite = suite_of(recorded)
    parts = parts_of(recorded, suite)
    plain = replace(recorded, recorded=None, settings={"tasks": list(entry.protocols)})
    settings = dict(dotted_settings(recorded.settings))
    if len(entry.protocols) < sum(len(run.tasks) for run in suite.runs):
        settings["tasks"] = list(entry.protocols)
    settings |= _changed(parts, parts_of(plain, suite), trained=not entry.untrained)
    limit = settings.pop("limit", None)
    words = [f"{name}={_setting(value)}" for name, value in settings.items()]
    again = replace(recorded, recorded=None, settings=parse_overrides(words), limit=limit)
    if _facts(parts_of(again, suite), entry) != _facts(parts, entry):
        raise ConfigError(
            f"{entry.id}: its trainings or tasks have rules that the options of `emobench run` give to all of them; "
            f"use emobench rerun {entry.id}."
        )
    options: dict[str, Any] = {
        "suite": recorded.suite,
        "model": recorded.model,
        "objective": recorded.objectives[0],
        "seed": list(recorded.seeds),
        "from-scratch": recorded.from_scratch,
        "limit": limit,
    }
    if recorded.dtype != "float32":
        options["dtype"] = recorded.dtype
    lines = [f"# {entry.id}: {entry.objective.label} on {entry.suite}; emobench run {entry.id}.toml"]
    for name, value in options.items():
        if value:
            lines.append(f"{name} = {_toml(value)}")
    lines += ["", "[set]"]
    for name, value in settings.items():
        typed = isinstance(value, (bool, int, float, list))
        lines.append(f"{name} = {_toml(value if typed else _setting(value))}")
    return "\n".join(lines) + "\n"


def _changed(parts: Parts, plain: Parts, *, trained: bool) -> dict[str, Any]:
    """Return the settings in which recorded trainings and tasks differ from those of a suite, and the limit."""
    settings = {}
    for (recipe, tasks), (base, base_tasks) in zip(parts, plain, strict=True):
        values = dict(dotted_settings(to_plain(base)))
        for name, value in dotted_settings(to_plain(recipe) if trained else {}):
            if name == "precision" or value != values.get(name):  # another device chooses another precision
                settings[f"recipe.{name}"] = value
        for task, base_task in zip(tasks, base_tasks, strict=True):
            kind = load_kind(task.kind)
            if task.protocol_name != base_task.protocol_name:
                settings["protocol"] = task.protocol_name
            if task.corpus != base_task.corpus:
                settings["corpus"] = task.corpus
            for rule, value in task.changes.items():
                shared = rule == "limit" or rule.partition(".")[0] in rule_groups(kind.rules)
                settings[rule if shared else f"{kind.name}.{rule}"] = value
    if "corpus" in settings:
        settings.pop("recipe.corpus", None)
    return settings


def _facts(parts: Parts, entry: Entry) -> list[Any]:
    """Return what decides the results of trainings and tasks."""
    facts = []
    for recipe, tasks in parts:
        facts.append(None if entry.untrained else recipe)
        for task in tasks:
            facts.append((task.name, task.protocol_id, task.corpus))
    return facts


def _setting(value: Any) -> str:
    """Return a value as `--set` reads it."""
    if isinstance(value, str) and parse_overrides([f"x={value}"])["x"] == value:
        return value
    return json.dumps(value, ensure_ascii=False)


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
