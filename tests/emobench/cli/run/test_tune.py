"""Equal tuning: each objective gets the same trials, is chosen on validation data, and is tested once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.store import Leaderboard

pytestmark = pytest.mark.slow

FAST = (
    *("--limit", 40, "--offline", "--quiet", "--set", "recipe.epochs=1", "--set", "recipe.max_tokens=4096"),
    *("--set", "mauve.seeds=[0]"),
)
SGD = (
    *("--set", "recipe.optimizer=sgd", "--set", "recipe.weight_decay=0", "--set", "recipe.clip=0"),
    *("--set", "recipe.warmup=0"),
)
"""With plain SGD, a tenth of a loss needs ten times the learning rate."""
RATES = "recipe.learning_rate=[0.3, 3.0, 30.0]"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

    folder = tmp_path_factory.mktemp("model") / "model"
    write_untrained(TINY_MODELS["tiny-oracle"], folder)
    return folder


def given(model: Path, folder: Path, *objectives: str) -> list[object]:
    options: list[object] = ["--model", model, "--runs", folder / "runs", "--leaderboard", folder / "board"]
    for objective in objectives:
        options += ["--objective", objective]
    return [*options, *FAST]


@pytest.fixture(scope="module")
def tuned(command: Callable[..., Any], model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The planted case: two objectives that are all but equal at their best rates, and not at a shared one."""
    folder = tmp_path_factory.mktemp("tuned")
    options = given(model, folder, "mle", "0.12*mle")
    seeds = ("--seed", 0, "--seed", 1, "--seed", 2)
    command("run", *options, *SGD, *seeds, "--set", "recipe.learning_rate=0.3").ok()
    search = ("--tune", RATES, "--trials", 3, "--sampler", "grid")
    return folder, command("run", *options, *SGD, *seeds, *search, "--json").ok().json["entries"]


def verdicts(command: Callable[..., Any], folder: Path, *names: str) -> dict[str, str]:
    found = command("compare", *names, "--leaderboard", folder / "board", "--runs", folder / "runs", "--json").ok().json
    (comparison,) = found["comparisons"]
    return {one["metric"].partition("/")[2]: one["verdict"] for one in comparison["contrasts"]}


def test_a_shared_rate_misleads_and_equal_tuning_does_not(
    command: Callable[..., Any], tuned: tuple[Path, list[dict[str, Any]]]
) -> None:
    folder, entries = tuned
    shared = command("leaderboard", "show", "--leaderboard", folder / "board", "--all", "--json").ok().json
    groups = [[entry["id"] for entry in group["entries"]] for group in shared["groups"]]
    ids = [entry["id"] for entry in entries]
    assert sorted(ids) in [sorted(group) for group in groups], "tuned rows have a table of their own"
    (untuned,) = [group for group in groups if not set(ids) & set(group)]
    assert verdicts(command, folder, *untuned)["total_variation"] in ("better", "worse")
    assert verdicts(command, folder, *ids)["total_variation"] == "tied"


def test_an_entry_records_the_space_the_trials_and_the_choice(tuned: tuple[Path, list[dict[str, Any]]]) -> None:
    _, entries = tuned
    for entry in entries:
        tuning = entry["tuning"]
        assert tuning["asked"] == {"recipe.learning_rate": "[0.3, 3.0, 30.0]"}
        assert [trial["settings"]["recipe.learning_rate"] for trial in tuning["trials"]] == [0.3, 3.0, 30.0]
        assert (tuning["metric"], tuning["higher_is_better"]) == ("total_variation", False)
        choice = tuning["trials"][tuning["chosen"]]
        assert choice["value"] == min(trial["value"] for trial in tuning["trials"] if trial["value"] is not None)
        assert choice["half_width"] > 0
        rate = choice["settings"]["recipe.learning_rate"]
        assert entry["recipe"]["learning_rate"] == rate
        assert bool(tuning["edge"]) == (rate != 3.0)
        assert entry["seeds"] == [0, 1, 2]
    first = entries[0]["tuning"]
    assert first["trials"][2]["missing"], "at a rate of 30 the loss diverges"


def test_the_choice_is_made_on_validation_data_alone(tuned: tuple[Path, list[dict[str, Any]]]) -> None:
    """No stage of a trial reads the test data, and no trial shares its training with a test."""
    folder, entries = tuned
    trials, tests = set(), set()
    for path in (folder / "runs/score").glob("*/stage.json"):
        facts = json.loads(path.read_text())
        training = facts["subject"].get("training")
        text = json.dumps(facts)
        (trials if '"split": "validation"' in text else tests).add(training)
    measured = [trial for entry in entries for trial in entry["tuning"]["trials"] if trial["value"] is not None]
    assert len(trials) == len(measured)
    assert not trials & tests


def test_the_same_command_makes_nothing_again_and_explains_itself(
    command: Callable[..., Any], tuned: tuple[Path, list[dict[str, Any]]]
) -> None:
    folder, entries = tuned
    board = ("--leaderboard", folder / "board", "--runs", folder / "runs")
    ids = [entry["id"] for entry in entries]
    text = command("compare", *ids, *board, "--explain").ok().out
    assert "recipe.learning_rate=3.0" in text
    curves = command("curves", *ids, *board)
    assert curves.ok().out.count("chosen") == len(ids)
    shown = command("curves", *ids, *board, "--json").json["tuning"]
    assert [tuning["chosen"] for tuning in shown.values()] == [entry["tuning"]["chosen"] for entry in entries]
    figure = folder / "tuning.svg"
    command("figures", *ids, *board, "--out", figure).ok()
    assert "<svg" in figure.read_text()


def test_an_objective_that_always_diverges_does_not_stop_the_others(
    command: Callable[..., Any], model: Path, tmp_path: Path
) -> None:
    search = ("--tune", "recipe.learning_rate=[30.0, 31.0]", "--trials", 2, "--sampler", "grid", "--seed", 0)
    for objectives, recorded in ((("mle", "0.12*mle"), ["0.12*mle"]), (("mle",), [])):
        options = given(model, tmp_path / str(len(recorded)), *objectives)
        done = command("run", *options, *SGD, *search)
        assert done.code != 0
        assert "No trial of mle" in done.err
        entries = Leaderboard(tmp_path / str(len(recorded)) / "board").entries()
        assert [entry.objective.label for entry in entries] == recorded


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--tune", "recipe.learning_rate"), "recipe.learning_rate"),
        (("--tune", "recipe.learning_rate=fast"), "recipe.learning_rate"),
        (("--tune", "recipe.lr=1e-5..1e-3"), "recipe.lr"),
        (("--tune", "recipe.learning_rate=1e-5..1e-3", "--trials", 1), "--trials"),
        (("--tune", "recipe.learning_rate=1e-5..1e-3", "--sampler", "guess"), "sampler"),
        (("--tune", "objective.gamma=0..1"), "gamma"),
        (("--tune", "objective.*"), "mle"),
        (("--tune", "objective.*=0.2..0.4"), "objective.*"),
        (("--tune", "recipe.epochs=-1..4", "--sampler", "tpe"), "epochs"),
        (("--tune", "recipe.epochs=[1, abc, 2]", "--sampler", "tpe"), "epochs"),
        (("--tune", "generation.sampling.top_p=0.5..1"), "generation.sampling.top_p"),
        (("--tune", "recipe.learning_rate=1e-5..1e-3", "--set", "oracle.split=validation"), "oracle.split"),
        (("--tune", "recipe.learning_rate=1e-5..1e-3", "--set", "recipe.learning_rate=1"), "recipe.learning_rate"),
        (("--tune", "recipe.learning_rate=1e-5..1e-3", "--trial-seeds", 0), "--trial-seeds"),
        (("--tune", "recipe.learning_rate=1e-5..1e-3", "--seed", 1_000_000), "--seed"),
        (("--trials", 4), "--tune"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_any_training(
    command: Callable[..., Any], model: Path, tmp_path: Path, options: tuple[object, ...], named: str
) -> None:
    done = command("run", *given(model, tmp_path, "mle"), *options)
    assert done.code == 2
    assert named in done.err
    assert not (tmp_path / "runs/train").exists()


@pytest.mark.parametrize("suite", ["alpaca-eval", "figure-2"])
def test_a_task_without_validation_data_is_refused(
    command: Callable[..., Any], model: Path, tmp_path: Path, suite: str
) -> None:
    options = ("--suite", suite, "--tune", "recipe.learning_rate=1e-5..1e-3", "--dry-run")
    done = command("run", "--objective", "mle", "--model", model, "--runs", tmp_path, *options)
    assert done.code == 2
    assert "validation" in done.err


def test_the_dry_run_counts_all_trials_and_the_tests(command: Callable[..., Any], model: Path, tmp_path: Path) -> None:
    search = ("--tune", "recipe.learning_rate=1e-4..1e-2", "--tune", "objective.*", "--trials", 4)
    options = given(model, tmp_path, "mle", "tailr")
    plan = command("run", *options, *search, "--seed", 0, "--seed", 1, "--dry-run", "--json").ok().json
    trainings = [line for line in plan["plan"] if line["stage"] == "train" and line["objective"]]
    assert len(trainings) == 2 * 4 + 2 * 2
    assert not (tmp_path / "runs").exists()


def test_trials_on_two_workers_survive_being_killed(
    model: Path, tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials on two workers, killed twice: each trial once, and the choice of an undisturbed run."""
    search = ("--tune", "recipe.learning_rate=1e-4..1e-1", "--trials", 4, "--seed", 0)
    options = [*given(model, tmp_path, "mle", "tailr"), "--set", "recipe.max_tokens=1024", *search]
    options[options.index("recipe.max_tokens=4096")] = "recipe.batch=8"
    words = [sys.executable, "-m", "emobench", "run", *map(str, options), "--processes", "2", "--json"]
    draw = random.Random(5)
    for _ in range(2):
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        finished = len(list((tmp_path / "runs").glob("train/*/stage.json")))
        end = time.monotonic() + 120
        while len(list((tmp_path / "runs").glob("train/*/stage.json"))) < finished + 2 and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.1)
        time.sleep(draw.random())
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    survived = json.loads(done.stdout)["entries"]
    options[options.index(tmp_path / "runs")] = tmp_path / "other"
    options[options.index(tmp_path / "board")] = tmp_path / "others"
    undisturbed = command("run", *options, "--json").ok().json["entries"]
    assert [entry["tuning"] for entry in survived] == [entry["tuning"] for entry in undisturbed]
    keys = [key for entry in survived for trial in entry["tuning"]["trials"] for key in trial["trainings"]]
    assert len(keys) == len(set(keys)) == 8
