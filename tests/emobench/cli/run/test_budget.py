"""Budgets: too many tokens begin nothing, hours that are over stop as Ctrl-C does, and memory has sizes in words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.cli.options.request import BudgetOptions
from emobench.core.errors import ConfigError
from emobench.runs.planning.request import Request
from emobench.training.memory import limit_memory


@pytest.mark.parametrize(
    ("given", "size"), [("16GB", 16 * 10**9), ("512 MiB", 2**29), ("1.5g", 15 * 10**8), ("2000000", 2_000_000)]
)
def test_memory_is_given_as_a_size(given: str, size: int) -> None:
    assert BudgetOptions(max_memory=given).memory == size


@pytest.mark.parametrize("given", ["much", "0", "-1GB", "16PB", "GB"])
def test_other_words_are_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="expected a size, such as 16GB or 500MB"):
        _ = BudgetOptions(max_memory=given).memory


def test_a_cpu_has_no_limit_of_memory() -> None:
    with pytest.raises(ConfigError, match=r"--max-memory is for GPUs, and --device is cpu; drop it"):
        limit_memory("cpu", 10**9)


@pytest.mark.parametrize("hours", [0.0, -1.0, float("nan"), float("inf")])
def test_hours_that_are_no_time_are_refused(hours: float) -> None:
    with pytest.raises(ConfigError, match="expected a number above 0"), BudgetOptions(max_hours=hours).in_time():
        pass


def test_more_tokens_than_the_budget_begin_nothing(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    given = ("train", "--model", small_model, "--data-dir", small_data, "--offline", "--runs", runs, "--quiet")
    two = ("--objective", "mle", "--objective", "emo", "--set", "recipe.max_length=32", "--set", "recipe.max_tokens=64")
    done = command(*given, *two, "--set", "recipe.epochs=1", "--max-tokens", 100)
    assert done.code == 2
    assert "This would train on 124 target tokens, and --max-tokens is 100." in done.err
    assert not runs.exists()
    request = Request(
        recipe="lm-finetune",
        objectives=("mle", "emo"),
        model=str(small_model),
        data_dirs=(small_data,),
        settings={"recipe": {"max_length": 32, "max_tokens": 64, "epochs": 1}},
        offline=True,
        runs=runs,
    )
    BudgetOptions(max_tokens=124).check_tokens([request])


@pytest.mark.slow
def test_hours_that_are_over_stop_the_command(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    given = ("--objective", "mle", "--model", small_model, "--data-dir", small_data, "--runs", tmp_path, "--offline")
    settings = ("--set", "recipe.max_length=32", "--set", "recipe.epochs=100000", "--device", "cpu")
    done = command("train", *given, *settings, "--max-hours", 0.001)
    assert done.code == 130
    assert "The 0.001 hours of --max-hours are over." in done.err
    assert "Run the same command again to go on" in done.err
