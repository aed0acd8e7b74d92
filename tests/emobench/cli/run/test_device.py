"""The device is found, unless it is given; what a CPU would be long at starts only when the CPU is asked for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from shown import inner_commands

from emobench.cli import app
from emobench.models.device import VISIBLE
from emobench.runs.planning import estimate

SIGNATURE = ("run", "--objective", "emo", "--model", "llama-7b", "--suite", "nlu")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without CUDA and with an empty cache, whose CPU makes 50 GFLOP/s."""
    from huggingface_hub import constants

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv(VISIBLE, "0")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(estimate, "_timed", lambda device, precision: 50e9)
    monkeypatch.chdir(tmp_path)


def _commands(parent: Any, prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for name, one in inner_commands(parent).items():
        found += _commands(one, f"{prefix}{name} ") or [(f"{prefix}{name}", one)]
    return found


def test_every_command_with_a_device_takes_the_one_that_is_there() -> None:
    commands = _commands(typer.main.get_command(app))
    defaults = {name: p.default for name, one in commands for p in one.params if p.name == "device"}
    assert defaults.pop("stage run") is None  # the plan has chosen one
    assert set(defaults) == {
        *("run", "train", "evaluate", "judge", "reproduce", "rerun", "sweep run"),
        *("plan", "prompts", "sample-corpus", "objectives bench", "tasks export"),
    }
    assert set(defaults.values()) == {"auto"}


def test_the_signature_command_does_not_start_on_a_cpu_by_itself(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command(*SIGNATURE)
    assert done.code == 2
    # 141M tokens at 4 N operations of training, and 16.7M at 2 N: 3.8e18 + 2.3e17, at half of 50 GFLOP/s.
    for part in ("5.1 years", "2.6 years to 10.2 years", "--device cpu", "--device cuda", "--limit", "max_tokens"):
        assert part in done.err
    assert list(tmp_path.iterdir()) == []  # nothing was begun


def test_its_dry_run_says_the_same_and_succeeds(command: Callable[..., Any]) -> None:
    document = command(*SIGNATURE, "--dry-run", "--json").ok().json
    notes = document["notes"]
    assert notes[0].startswith("Not started")
    assert "5.1 years" in notes[0]
    assert any("Too large: " in note and "of this machine" in note for note in notes)
    assert document["machine"] == "this CPU"
    assert sum(document["totals"]["seconds"].values()) > 5 * 365 * 86400


def test_a_cpu_that_is_given_by_name_is_only_warned_of(command: Callable[..., Any]) -> None:
    done = command(*SIGNATURE, "--device", "cpu", "--dry-run")
    assert done.out.partition("\n\n")[2].startswith("Long: this takes about 5.1 years")
    command(*SIGNATURE, "--device", "cpu", "--offline").refused("Not on this machine: ")


def test_a_gpu_elsewhere_is_planned_for(command: Callable[..., Any]) -> None:
    done = command(*SIGNATURE, "--device", "cuda", "--dry-run").ok()
    assert "one H100-class GPU" in done.out
    assert "Not started" not in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "--objective", "emo", "--model", "llama-7b"),
        ("evaluate", "--model", "llama-7b", "--suite", "nlu"),
        ("reproduce", "table-3"),
    ],
)
def test_other_commands_ask_too(command: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    command(*arguments).refused("Not started")


def test_sampling_a_corpus_asks_too(command: Callable[..., Any], byte_model: Path, tmp_path: Path) -> None:
    given = ("sample-corpus", byte_model, "--out", tmp_path / "out")
    command(*given, "--train", 10**8, "--length", 1000).refused("Not started", "--train N")
    assert not (tmp_path / "out").exists()
    command(*given, "--train", 2, "--validation", 1, "--test", 1, "--length", 4).ok()


def test_an_evaluation_alone_is_not_charged_with_trainings(command: Callable[..., Any]) -> None:
    shown = command("evaluate", *SIGNATURE[1:], "--dry-run", "--json").ok()
    assert not [line for line in shown.json["plan"] if line["stage"] == "train"]
    assert shown.json["totals"]["seconds"]["train"] == 0
    assert "1 trainings are missing, such as emo, seed 0, on wikitext103" in shown.out


def test_the_device_that_is_found_is_the_one_that_is_recorded(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    """A stage's key is of "cpu", as where that is given: the same stage is found again."""
    given = ("--model", small_model, "--data-dir", small_data, "--runs", tmp_path / "runs", "--objective", "mle")
    small = ("--seed", 0, "--set", "recipe.max_length=32", "--set", "recipe.max_tokens=256", "--quiet", "--json")
    found = command("train", *given, *small).ok()
    named = command("train", *given, *small, "--device", "cpu")
    assert found.json == named.json
    (stage,) = [json.loads(file.read_text()) for file in (tmp_path / "runs/train").rglob("stage.json")]
    assert '"device": "cpu"' in json.dumps(stage)
    assert '"device": "auto"' not in json.dumps(stage)
