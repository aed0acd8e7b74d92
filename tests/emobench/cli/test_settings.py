"""What `--set` takes is listed in one place, each setting with its meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
import typer
from transformers import TrainingArguments

from emobench.cli import app
from emobench.core.settings import parse_overrides, to_plain
from emobench.registry import find_task, task_names
from emobench.runs.inspect.settings import settings
from emobench.runs.planning.request import Request, setting_names
from emobench.runs.planning.resolve import recipe_of
from emobench.tasks.rules import dotted, rule_groups
from emobench.training.recipe import FIXED, PASSED_ON, SET_BY, Recipe, own_name


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


@pytest.mark.parametrize(
    ("word", "names"),
    [
        ("warm", ["recipe.schedule", "recipe.warmup"]),  # in a name, and in a meaning
        ("lr", ["recipe.learning_rate"]),  # of TRL; "already" has it, too
        ("lora_alpha", ["recipe.lora.alpha"]),
        ("adam_beta2", ["recipe.trainer"]),
        ("gradient_accumulation", ["recipe.accumulation"]),
        ("Weight decay", ["recipe.weight_decay"]),
        ("mauve", sorted(setting.name for setting in settings("mauve"))),
    ],
)
def test_a_word_is_searched_for(command: Callable[..., Any], word: str, names: list[str]) -> None:
    listed = command("settings", word, "--json").ok().json
    assert sorted(setting["name"] for setting in listed) == names


def test_a_word_that_no_setting_is_about(command: Callable[..., Any]) -> None:
    command("settings", "zzz").refused("zzz", "recipe")
    command("settings", "torch_dtype").refused("--dtype")


@pytest.mark.parametrize(
    ("word", "own"),
    [
        ("lr", "recipe.learning_rate"),
        ("learning_rate", "recipe.learning_rate"),
        ("bf16", "recipe.precision"),
        ("fp16", "recipe.precision"),
        ("torch_dtype", "--dtype"),
        ("warmup_ratio", "recipe.warmup"),
        ("max_steps", "recipe.max_tokens"),
        ("lora.r", "recipe.lora.rank"),
        ("lora_alpha", "recipe.lora.alpha"),
        ("target_modules", "recipe.lora.targets"),
        ("per_device_train_batch_size", "recipe.batch"),
        ("gradient_accumulation_steps", "recipe.accumulation"),
        ("num_train_epochs", "recipe.epochs"),
        ("max_seq_length", "recipe.max_length"),
        ("max_length", "recipe.max_length"),
        ("weight_decay", "recipe.weight_decay"),
        ("max_grad_norm", "recipe.clip"),
        ("packing", "recipe.packing"),
        ("optim", "recipe.optimizer"),
        ("lr_scheduler_type", "recipe.schedule"),
        ("assistant_only_loss", "recipe.template"),
        ("adam_beta2", "recipe.trainer.adam_beta2"),
        ("neftune_noise_alpha", "recipe.trainer.neftune_noise_alpha"),
        ("epochs", "recipe.epochs"),  # a name of ours without its section
        ("top_p", "generation.sampling.top_p"),
        ("report_to", "--track"),
    ],
)
def test_a_name_of_other_libraries_gets_ours(command: Callable[..., Any], word: str, own: str) -> None:
    command("run", "--set", f"{word}=1", "--dry-run").refused(word, own)
    if word not in to_plain(Recipe(name="x", corpus="y")):
        command("run", "--set", f"recipe.{word}=1", "--dry-run").refused(word, own)
    if "." not in word:
        command("run", f"--{word}", "1").refused(word, own)
        command("run", f"--{word.replace('_', '-')}=1").refused(own)


@pytest.mark.parametrize("own", SET_BY)
def test_each_suggestion_is_accepted(command: Callable[..., Any], own: str) -> None:
    options = [option for parameter in _run_command().params for option in parameter.opts]
    if own.startswith("--"):
        assert own.split(maxsplit=1)[0] in options
        return
    values = {setting.name: setting.default for setting in settings()} | {"corpus": "ag_news"}
    given = parse_overrides([f"{own}={json.dumps(values[own])}"])
    recipe_of(Request(recipe="lm-finetune", settings=given), "lm-finetune", {})


def _run_command() -> Any:
    group: Any = typer.main.get_command(app)
    return group.load("run")


def test_the_arguments_of_the_trainer_are_passed_on_or_set() -> None:
    known = set(TrainingArguments.__dataclass_fields__)
    assert known - FIXED - {name for name in known if own_name(name)} == PASSED_ON
    for name in PASSED_ON:
        default = TrainingArguments.__dataclass_fields__[name].default
        if default is not dataclasses.MISSING:
            Recipe(name="x", corpus="y", trainer={name: default})
