"""Recipes refuse what cannot be trained, in a sentence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from emobench.core.errors import ConfigError, UserError
from emobench.core.settings import build, to_plain
from emobench.registry import find_recipe
from emobench.training.recipe import (
    Recipe,
    require_a_rate,
    steps_at_rate_0,
    warmup_steps,
)

NAMES = {"name": "tiny", "corpus": "none"}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        *(({name: value}, f"`{name}` is {value}") for name, value in (
            ("epochs", 0), ("epochs", float("nan")), ("batch", -1), ("accumulation", 0), ("learning_rate", 0.0),
            ("max_length", 1), ("weight_decay", -0.1), ("clip", -1.0), ("warmup", 1.5), ("max_tokens", 10),
        )),
        ({"mask_until": "###"}, "packing=rows"),
        ({"schedule": "step"}, "schedule"),
        ({"optimizer": "adam"}, "optimizer.*adafactor"),
        ({"gradient_checkpointing": "some"}, "gradient_checkpointing"),
        ({"lora": {"dropout": 1.5}}, "dropout"),
        ({"batch": "many"}, "batch"),
        ({"learning_rat": 1e-3}, "learning_rate"),  # the nearest name
        ({"lora": {"rnk": 4}}, "rank"),
    ],
)  # fmt: skip
def test_a_recipe_file_that_does_not_fit(values: dict[str, Any], named: str) -> None:
    with pytest.raises(UserError, match=named):
        build(Recipe, NAMES | values, "recipe tiny")


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"adam_betta2": 0.9}, "trainer.adam_betta2'; did you mean 'trainer.adam_beta2'"),
        ({"adam_beta2": "high"}, "`trainer.adam_beta2` is 'high'; expected a number"),
        ({"max_grad_norm": 1.0}, "`trainer.max_grad_norm`.*use recipe.clip"),
        ({"per_device_train_batch_size": 4}, "use recipe.batch"),
        ({"report_to": "wandb"}, "--track"),
        ({"push_to_hub": True}, "`trainer.push_to_hub`.*cannot be changed"),
    ],
)
def test_an_argument_of_the_trainer_that_cannot_be_passed(given: dict[str, Any], found: str) -> None:
    with pytest.raises(UserError, match=found):
        build(Recipe, NAMES | {"trainer": given}, "recipe tiny")


def test_arguments_of_the_trainer_are_part_of_a_recipe_only_if_they_are_given() -> None:
    assert "trainer" not in to_plain(Recipe(**NAMES))
    recipe = build(Recipe, NAMES | {"trainer": {"adam_beta2": "1e-1", "torch_empty_cache_steps": 3}}, "recipe tiny")
    assert to_plain(recipe)["trainer"] == {"adam_beta2": 0.1, "torch_empty_cache_steps": 3}
    assert hash(recipe) == hash(replace(recipe, trainer=None))


def test_overrides_of_the_trainers_arguments_add_up() -> None:
    overrides = ({"trainer": {"adam_beta1": 0.8, "adam_beta2": 0.9}}, {"trainer": {"adam_beta2": 0.95}})
    assert find_recipe("lm-finetune", *overrides).trainer == {"adam_beta1": 0.8, "adam_beta2": 0.95}
    assert find_recipe("lm-finetune", *overrides, {"trainer": None}).trainer is None


@pytest.mark.parametrize(
    ("batch", "accumulation", "processes", "micro"), [(32, 1, 1, 32), (32, 4, 1, 8), (32, 4, 2, 4), (8, 1, 8, 1)]
)
def test_a_micro_batch_is_a_share_of_the_batch(batch: int, accumulation: int, processes: int, micro: int) -> None:
    assert Recipe(**NAMES, batch=batch, accumulation=accumulation).micro_batch(processes) == micro


@pytest.mark.parametrize(
    ("precision", "lora", "device", "dtype", "expected"),
    [
        ("auto", False, "cpu", "auto", "float32"),
        ("auto", False, "cuda", "auto", "bfloat16"),
        ("auto", True, "cuda:1", "auto", "float16"),
        ("auto", True, "cuda", "bfloat16", "bfloat16"),
        ("auto", False, "cuda", "bfloat16", "bfloat16"),
        ("auto", False, "cpu", "bfloat16", "bfloat16"),
        ("auto", True, "cuda", "float16", "float16"),
        ("auto", False, "cuda", "float32", "float32"),
        ("auto", True, "cuda", "float32", "float32"),
        ("float32", False, "cuda", "auto", "float32"),
        ("bfloat16", False, "cpu", "float32", "bfloat16"),
    ],
)
def test_the_precision_of_a_device(precision: str, lora: bool, device: str, dtype: str, expected: str) -> None:
    """--dtype decides what a training computes in, and never the data type of its weights."""
    recipe = Recipe(name="r", corpus="c", precision=precision, lora=lora)  # type: ignore[arg-type]
    found = recipe.resolved(device, dtype)
    assert found == replace(recipe, precision=expected)  # type: ignore[arg-type]
    assert (found.resolved("cuda"), found.weight_dtype) == (found, "float32")


def test_weights_in_half_precision_are_asked_for_by_the_recipe_alone() -> None:
    lean = Recipe(**NAMES, weight_dtype="bfloat16")
    for device in ("cpu", "cuda"):
        for dtype in ("auto", "float32", "bfloat16", "float16"):
            assert lean.resolved(device, dtype) == replace(lean, precision="bfloat16")
    with pytest.raises(ConfigError, match="`weight_dtype` is float16"):
        Recipe(**NAMES, weight_dtype="float16")
    assert Recipe(**NAMES, weight_dtype="float16", lora=True).resolved("cuda").precision == "float16"


@pytest.mark.parametrize("schedule", ["linear", "cosine", "constant_with_warmup"])
def test_the_steps_at_a_rate_of_0_are_those_of_the_trainers_schedule(schedule: str) -> None:
    from torch import nn
    from torch.optim import SGD
    from transformers import get_scheduler

    for steps in (1, 2, 3, 10, 33):
        for warmup in (0.0, 0.001, 0.03, 0.5, 1.0):
            recipe = Recipe(**NAMES, warmup=warmup)
            optimizer = SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
            rates = get_scheduler(schedule, optimizer, warmup_steps(recipe, steps), steps)
            zero = 0
            for _ in range(steps):
                zero += rates.get_last_lr()[0] == 0
                optimizer.step()
                rates.step()
            assert zero == steps_at_rate_0(recipe, steps), (steps, warmup)
            if zero < steps:
                require_a_rate(recipe, steps)
                continue
            with pytest.raises(ConfigError, match="no weight would move"):
                require_a_rate(recipe, steps)


@pytest.mark.parametrize(
    ("batch", "accumulation", "expected"), [(8, 1, 2), (8, 4, 8), (6, 2, 6), (9, 1, 3), (7, 1, 7), (8, 8, None)]
)
def test_less_memory_has_the_same_batch_in_more_parts(batch: int, accumulation: int, expected: int | None) -> None:
    smaller = Recipe(**NAMES, batch=batch, accumulation=accumulation).in_less_memory()
    assert (smaller and smaller.accumulation) == expected
    assert smaller is None or (smaller.batch, smaller.micro_batch(1)) == (batch, batch // smaller.accumulation)
