"""What `--set` takes is listed in one place, each setting with its meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emobench.core.settings import to_plain
from emobench.registry import find_task, task_names
from emobench.runs.inspect.settings import settings
from emobench.runs.planning.request import setting_names
from emobench.tasks.rules import dotted, rule_groups
from emobench.training.recipe import Recipe


@pytest.mark.parametrize("setting", settings(), ids=lambda setting: setting.name)
def test_a_setting_has_a_meaning(setting: Any) -> None:
    assert setting.meaning.endswith((".", ")")), f"{setting.name} has no docstring under its field."


def test_every_first_word_and_every_rule_is_listed() -> None:
    listed = {setting.name for setting in settings()}
    assert {name.partition(".")[0] for name in listed} == setting_names()
    assert {f"recipe.{name}" for name in to_plain(Recipe(name="x", corpus="y")) if name != "name"} <= listed
    assert "recipe.name" not in listed  # the suite names the recipe
    for task in map(find_task, task_names()):
        rules, groups = dotted(task.protocol), rule_groups(type(task.protocol))
        for name in rules:
            if not any(other.startswith(f"{name}.") for other in rules):  # else it is a group of rules
                assert (name if name.partition(".")[0] in groups else f"{task.kind}.{name}") in listed


def test_a_setting_is_shown_with_type_default_and_meaning(command: Callable[..., Any]) -> None:
    shown = command("settings", "recipe").ok().out
    assert "recipe.clip (number; default 0.0)\n    Largest gradient norm. 0: no clipping.\n" in shown
    assert 'recipe.schedule (linear | cosine | constant; default "linear")\n' in shown
    assert "recipe.corpus (text, from the file)\n" in shown
    found = command("settings", "mauve", "--json").ok().json
    assert found[0]["name"] == "mauve.featurizer"
    command("settings", "recip").refused("recipe")
