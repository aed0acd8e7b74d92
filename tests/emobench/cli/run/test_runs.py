"""`emobench runs`: what needs each stage, and that nothing that is needed is deleted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.locks import locked

SMALL = (
    *("--suite", "lm-quick", "--limit", "24", "--offline", "--set", "mauve.seeds=[0]", "--json"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "recipe.max_length=32", "--set", "recipe.epochs=1", "--objective", "mle"),
)


class Place:
    """A folder with runs and a board."""

    def __init__(self, command: Callable[..., Any], folder: Path, model: Path, data: Path) -> None:
        self.command, self.folder = command, folder
        self.runs, self.board = folder / "runs", folder / "board"
        self.given = ("--model", model, "--data-dir", data)

    def run(self, *arguments: object) -> list[dict[str, Any]]:
        places = ("--runs", self.runs, "--leaderboard", self.board)
        return self.command("run", *SMALL, *self.given, *places, *arguments).ok().json["entries"]

    def train(self) -> Path:
        """Train emo, and return its stage."""
        settings = ("--set", "recipe.max_length=32", "--set", "recipe.epochs=1", "--recipe", "lm-finetune")
        given = (*self.given, *settings, "--offline", "--objective", "emo", "--seed", 7, "--runs", self.runs, "--json")
        return Path(self.command("train", *given).ok().json["trained"][0]["model"]).parent

    def __call__(self, verb: str, *arguments: object) -> Any:
        return self.command("runs", verb, "--runs", self.runs, "--leaderboard", self.board, *arguments)

    def needed(self) -> dict[str, list[str]]:
        return {stage["stage"]: list(stage["needed_by"]) for stage in self("list", "--json").ok().json["stages"]}


@pytest.fixture(scope="module")
def made(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Place:
    """Two entries, of two learning rates."""
    place = Place(command, tmp_path_factory.mktemp("made"), small_model, small_data)
    for rate in (0.001, 0.002):
        place.run("--seed", 0, "--set", f"recipe.learning_rate={rate}")
    return place


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:
    """A copy, to delete from."""
    shutil.copytree(made.folder, tmp_path / "copy")
    return Place(made.command, tmp_path / "copy", *made.given[1::2])  # type: ignore[arg-type]


def test_every_stage_names_the_entries_that_need_it(made: Place) -> None:
    needed = made.needed()
    kinds = {name.partition("/")[0] for name in needed}
    assert {"train", "generate", "score", "examples", "corpus"} <= kinds
    for name, users in needed.items():
        kind = name.partition("/")[0]
        if kind in ("train", "generate", "score", "examples"):
            assert [user[:5] for user in users] == ["entry"], name
        if kind == "corpus":
            assert len(users) == 2
    assert "0 of " in made("prune", "--yes").ok().out


def test_an_entry_that_is_gone_needs_nothing(place: Place) -> None:
    first, second = sorted((place.board / "lm-quick-v1").iterdir())
    kept = json.loads(second.read_text())["id"]
    first.unlink()
    unneeded = {stage for stage, users in place.needed().items() if not users}
    assert {stage.partition("/")[0] for stage in unneeded} == {"train", "generate", "score", "examples"}
    shown = place("prune", "--dry-run").ok().out
    assert all(stage in shown for stage in unneeded)
    refused = place("prune")  # nobody can be asked
    assert refused.code == 2
    assert "--yes" in refused.err
    assert place.needed().keys() >= unneeded
    assert "Freed " in place("prune", "--yes").ok().out
    assert not place.needed().keys() & unneeded
    assert place.command("leaderboard", "verify", "--leaderboard", place.board, "--runs", place.runs).code == 0
    rate = json.loads(second.read_text())["recipe"]["learning_rate"]
    again = place.run("--seed", 0, "--set", f"recipe.learning_rate={rate}")
    assert [entry["id"] for entry in again] == [kept]


def test_a_training_that_was_not_evaluated_is_kept_unless_it_is_given_up(place: Place) -> None:
    trained = place.train()
    assert place.needed()[f"train/{trained.name}"] == ["not evaluated yet"]
    place("prune", "--yes").ok()
    assert trained.exists()
    place("prune", "--yes", "--unfinished").ok()
    assert not trained.exists()
    assert len(list((place.runs / "train").iterdir())) == 2
    assert place.train() == trained  # made again


def test_nothing_is_deleted_while_a_command_runs_or_may_go_on(place: Place) -> None:
    for entry in (place.board / "lm-quick-v1").iterdir():
        entry.unlink()
    (place.runs / "planned").mkdir(exist_ok=True)
    plan = place.runs / "planned" / "0123456789abcdef.json"
    plan.write_text("{}")
    before = place.needed()
    interrupted = place("prune", "--yes")
    assert (interrupted.code, plan.stem in interrupted.err) == (2, True)
    with locked(place.runs / "train" / "0123456789abcdef.lock"):
        running = place("prune", "--yes", "--unfinished")
        assert (running.code, "is running" in running.err) == (2, True)
    assert place.needed() == before
    place("prune", "--yes", "--unfinished").ok()
    assert not plan.exists()
    assert {stage.partition("/")[0] for stage in place.needed()} == {"features", "perplexity"}


def test_nothing_is_deleted_next_to_an_entry_that_cannot_be_read(place: Place) -> None:
    file = next((place.board / "lm-quick-v1").iterdir())
    file.write_text("{")
    refused = place("prune", "--yes")
    assert refused.code == 2
    assert file.name in refused.err
    assert place("prune", "--yes", "--leaderboard", place.folder / "mistyped").code == 2
