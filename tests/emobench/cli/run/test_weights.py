"""The weights of a run: float32 while they are trained, whatever --dtype is, and known to have moved."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from safetensors.torch import load_file

JSON_SCHEMA = Path(__file__).parents[4] / "emobench" / "leaderboard" / "entry.schema.json"
TASK = (
    *("--suite", "lm-quick", "--limit", "12", "--set", "mauve.seeds=[0]", "--set", "generation.max_length=32"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8"),
)
RECIPE = ("--set", "recipe.max_length=32", "--set", "recipe.epochs=1")


@pytest.fixture
def given(small_model: Path, small_data: Path, tmp_path: Path) -> tuple[object, ...]:
    return (
        *("--objective", "mle", "--model", small_model, "--data-dir", small_data, "--offline", "--quiet"),
        *("--device", "cpu", "--runs", tmp_path / "runs", *RECIPE),
    )


def moved(folder: Path, model: Path) -> float:
    """Return the share of weights that a training changed, as it wrote them."""
    base, trained = (load_file(place / "model.safetensors") for place in (model, folder))
    assert {str(weight.dtype) for weight in trained.values()} == {"torch.float32"}
    changed = sum(int((trained[name] != base[name]).sum()) for name in base)
    return changed / sum(weight.numel() for weight in base.values())


@pytest.mark.parametrize("lora", [(), ("--set", "recipe.lora=true")])
def test_a_training_in_half_precision_moves_its_weights(
    command: Callable[..., Any], given: tuple[object, ...], small_model: Path, lora: tuple[str, ...]
) -> None:
    """With bfloat16 weights, a learning rate of 1e-5 would move few: most steps are rounded away."""
    words = (*given, *lora, "--set", "recipe.learning_rate=1e-5", "--json")
    folders, keys = [], []
    for more in (("--dtype", "float32"), ("--dtype", "bfloat16"), ("--set", "recipe.precision=bfloat16")):
        (one,) = command("train", *words, *more).ok().json["trained"]
        folders.append(Path(one["model"]))
        keys.append(folders[-1].parent.name)
    shares = [moved(folder, small_model) for folder in folders]
    assert shares[0] > (0.05 if lora else 0.9)  # LoRA adapts one of several matrices
    assert shares[1] > 0.9 * shares[0]
    assert keys[1] == keys[2] != keys[0]


def test_weights_that_did_not_move_are_recorded_and_judged_by_none(
    command: Callable[..., Any], given: tuple[object, ...], tmp_path: Path
) -> None:
    board, seeds = ("--leaderboard", tmp_path / "board"), ("--seed", 0, "--seed", 1, "--seed", 2)
    still = ("--set", "recipe.learning_rate=1e-60")
    done = command("run", *TASK, *given, *still, *board, *seeds, "--objective", "emo", "--dtype", "bfloat16", "--json")
    entries = done.ok().json["entries"]
    for entry in entries:
        jsonschema.validate(entry, json.loads(JSON_SCHEMA.read_text()))
        assert (entry["recipe"]["dtype"], entry["recipe"]["weight_dtype"]) == ("bfloat16", "float32")
        for run in entry["runs"]:
            (weights,) = run["weights"]
            assert weights["tasks"] == ["lm-quick"]
            assert weights["trained"] == weights["base"]
    compared = command("compare", "emo", "mle", *board, "--runs", tmp_path / "runs", "--json").ok().json
    contrasts = [one for comparison in compared["comparisons"] for one in comparison["contrasts"]]
    whys = {one["why"] for one in contrasts if one["verdict"] is not None}
    assert whys == {"the training of seed 0 changed no weight"}
    assert {one["verdict"] for one in contrasts} <= {"undetermined", None}


def test_a_training_of_one_step_that_moves_nothing_is_refused(
    command: Callable[..., Any], given: tuple[object, ...]
) -> None:
    one_step = ("--set", "recipe.batch=10000", "--set", "recipe.warmup=0.03")
    for more in ((), ("--dry-run",)):
        command("train", *given, *one_step, *more).refused("warmup", "no weight would move")
    done = command("train", *given, "--set", "recipe.batch=16", "--set", "recipe.warmup=0.03", "--dry-run", "--json")
    (line,) = [line for line in done.ok().json["plan"] if line["stage"] == "train"]
    assert line["steps_at_rate_0"] == 1
