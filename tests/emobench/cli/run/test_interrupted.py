"""A training that is stopped or killed goes on from its last checkpoint, to the same weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def arguments(model: Path, data: Path, runs: Path) -> list[object]:
    given = (
        "train",
        "--objective",
        "emo",
        "--model",
        model,
        "--data-dir",
        data,
        "--runs",
        runs,
        "--offline",
        "--quiet",
    )
    settings = ("recipe.max_length=32", "recipe.epochs=12", "recipe.learning_rate=1e-3")
    return [*given, *(word for setting in settings for word in ("--set", setting)), "--quiet"]


def stopped(words: list[object], number: int, folder: Path, pattern: str) -> tuple[int, str]:
    """Run a command, send it a signal once a file matches, and return its exit code and stderr."""
    process = subprocess.Popen(
        [sys.executable, "-m", "emobench", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(number)
    err = process.communicate()[1]
    return process.returncode, err


@pytest.fixture(scope="module")
def expected(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    """The weights of the training that nothing interrupted."""
    done = command(*arguments(small_model, small_data, tmp_path_factory.mktemp("whole")), "--json").ok()
    return (Path(done.json["trained"][0]["model"]) / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_it_goes_on_to_the_same_weights(
    command: Callable[..., Any],
    small_model: Path,
    small_data: Path,
    tmp_path: Path,
    expected: bytes,
    number: int,
    code: int,
) -> None:
    words = arguments(small_model, small_data, tmp_path)
    ended, err = stopped(words, number, tmp_path, "train/*.part/checkpoints/checkpoint-*/seal.json")
    assert ended == code
    assert ("Stopping after this step, with a checkpoint" in err) is (number == signal.SIGINT)
    assert not list((tmp_path / "train").rglob("stage.json"))
    part = next((tmp_path / "train").glob("*.part"))
    assert (part / "log.jsonl").read_text()
    done = command(*words, "--json").ok()
    assert (Path(done.json["trained"][0]["model"]) / "model.safetensors").read_bytes() == expected
    assert not part.exists()


def test_a_generation_ends_at_a_schedulers_signal(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    rules = ("prefix=4", "continuation=20", "max_length=32", "sampling.samples=400")
    words: list[object] = ["evaluate", "--model", small_model, "--data-dir", small_data, "--suite", "lm-quick"]
    words += ["--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--offline", "--quiet"]
    words += [word for rule in rules for word in ("--set", f"generation.{rule}")]
    code, err = stopped(words, signal.SIGTERM, tmp_path, "runs/generate/*.part")
    assert code == 130
    assert err.startswith("\nStopped. Run the same command again")
    assert not list(tmp_path.rglob("*.lock"))
    assert not list((tmp_path / "board").rglob("*.json"))
