"""A probe does a part of a run's work in a folder of its own, and its times are what the dry run tells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.runs.dry_run import line_through

SETTINGS = ("generation.max_length=32", "generation.prefix=4", "generation.continuation=8", "mauve.seeds=[0]")
TRAINED = ("recipe.max_length=32", "recipe.batch=4", "recipe.epochs=3")


@pytest.fixture
def run(command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path) -> Callable[..., Any]:
    """Run `emobench VERB` on a small model with a corpus of 90 texts, for MLE and EMO."""

    def run(verb: str, *more: object, settings: tuple[str, ...] = TRAINED) -> Any:
        places = ("--data-dir", small_data, "--runs", tmp_path / "runs")
        asked = ("--objective", "mle", "--objective", "emo", "--seed", 3, "--model", small_model, "--offline")
        words = [word for one in settings for word in ("--set", one)]
        return command(verb, *asked, *places, *words, "--device", "cpu", *more)

    return run


def lines(found: Any, stage: str) -> list[dict[str, Any]]:
    return [line for line in found.ok().json["plan"] if line["stage"] == stage]


def test_a_probe_takes_the_place_of_estimates_and_leaves_nothing(run: Callable[..., Any], tmp_path: Path) -> None:
    own = ("--suite", "lm-quick", "--limit", 30, "--leaderboard", tmp_path / "board", "--dry-run", "--json")
    plain, timed = (run("run", *own, *more, settings=(*TRAINED, *SETTINGS)) for more in ((), ("--probe",)))
    assert list((tmp_path / "runs").iterdir()) == []
    assert not (tmp_path / "board").exists()
    for stage in ("train", "evaluate"):
        guessed, measured = lines(plain, stage), lines(timed, stage)
        assert [line["what"] for line in guessed] == [line["what"] for line in measured]
        assert [line["tokens"] for line in guessed] == [line["tokens"] for line in measured]
        assert all(a["seconds"] != b["seconds"] > 0 for a, b in zip(guessed, measured, strict=True))
    # A process with torch in it holds more than the weights of a model of some kilobytes.
    assert all(line["memory_bytes"] > 10**8 for line in lines(timed, "train"))
    assert any("a probe on this machine" in note for note in timed.json["notes"])
    assert not any("Rough estimates" in note for note in timed.json["notes"])


def test_a_training_alone_is_probed_by_its_first_steps(run: Callable[..., Any], tmp_path: Path) -> None:
    found = run("train", "--recipe", "lm-finetune", "--dry-run", "--probe", "--json")
    trained = lines(found, "train")
    assert [line["objective"] for line in trained] == ["mle", "emo"]
    assert all(line["seconds"] > 0 for line in trained)
    assert list((tmp_path / "runs").iterdir()) == []


def test_what_cannot_be_probed_is_a_sentence(run: Callable[..., Any], command: Callable[..., Any]) -> None:
    run("train", "--recipe", "lm-finetune", "--probe").refused("add --dry-run")
    asked = ("--suite", "nlu", "--objective", "emo", "--model", "llama-7b", "--offline", "--device", "cpu")
    command("run", *asked, "--dry-run", "--probe").refused("Not on this machine: ", "llama", "Drop --probe.")


def test_the_time_of_an_evaluation_is_on_the_line_through_two_sizes() -> None:
    assert line_through((100, 3.0), (300, 4.0), 1100) == pytest.approx(8.0)
    assert line_through((100, 3.0), (300, 4.0), 10) == 3.0
    assert line_through((100, 3.0), (300, 2.9), 600) == pytest.approx(5.8)
    assert line_through((100, 3.0), (100, 3.0), 200) == 6.0
    assert line_through((0, 3.0), (0, 4.0), 200) == 4.0
