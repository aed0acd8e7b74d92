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


def arguments(model: Path, data: Path, runs: Path) -> list[str]:
    given = [
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
    ]
    settings = ("recipe.max_length=32", "recipe.epochs=30", "recipe.learning_rate=1e-3")
    return [*map(str, given), *(word for setting in settings for word in ("--set", setting))]


def wait_for(process: subprocess.Popen[str], folder: Path, pattern: str) -> None:
    for _ in range(12_000):
        if list(folder.glob(pattern)):
            return
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    raise AssertionError(f"{pattern} did not appear in {folder}")


@pytest.fixture(scope="module")
def expected(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    """The weights of the training that nothing interrupted."""
    done = command(*arguments(small_model, small_data, tmp_path_factory.mktemp("whole")), "--json").ok()
    return (Path(done.json["trained"][0]["model"]) / "model.safetensors").read_bytes()


@pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
def test_it_goes_on_to_the_same_weights(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path, expected: bytes, name: str
) -> None:
    given = arguments(small_model, small_data, tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "emobench", *given],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(process, tmp_path, "train/*.part/checkpoints/checkpoint-*/seal.json")
    process.send_signal(getattr(signal, name))
    out, err = process.communicate()
    assert out == ""
    if name != "SIGKILL":
        assert process.returncode == 130
        assert err == (
            "\nStopping after this step, with a checkpoint; once more stops at once.\n"
            "\nStopped. Run the same command again to go on from the last finished stage or checkpoint.\n"
        )
    else:
        assert process.returncode == -signal.SIGKILL
    assert not list((tmp_path / "train").rglob("stage.json"))
    part = next((tmp_path / "train").glob("*.part"))
    steps = len((part / "log.jsonl").read_text().splitlines())
    assert steps > 0

    done = command(*given, "--json").ok()
    model = Path(done.json["trained"][0]["model"])
    assert (model / "model.safetensors").read_bytes() == expected
    assert not part.exists()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_generation_ends_as_by_a_key_and_goes_on(
    small_model: Path, small_data: Path, tmp_path: Path, name: str
) -> None:
    """Outside of a training, too: a scheduler's signal, and a connection that is lost."""
    given = [
        "evaluate",
        "--model",
        small_model,
        "--data-dir",
        small_data,
        "--suite",
        "lm-quick",
        "--offline",
        "--quiet",
    ]
    given += [
        "--set",
        "generation.prefix=4",
        "--set",
        "generation.continuation=20",
        "--set",
        "generation.max_length=32",
    ]
    given += [
        "--set",
        "generation.sampling.samples=400",
        "--runs",
        tmp_path / "runs",
        "--leaderboard",
        tmp_path / "board",
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "emobench", *map(str, given), "--set", "mauve.seeds=[0]"],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(process, tmp_path, "runs/generate/*.part")
    process.send_signal(getattr(signal, name))
    err = process.communicate()[1]
    assert process.returncode == 130
    assert err == "\nStopped. Run the same command again to go on from the last finished stage or checkpoint.\n"
    assert not list(tmp_path.rglob("*.lock"))
    assert not list((tmp_path / "board").rglob("*.json"))
