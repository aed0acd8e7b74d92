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


def wait_for(folder: Path, pattern: str) -> None:
    for _ in range(3000):
        if list(folder.glob(pattern)):
            return
        time.sleep(0.01)
    raise AssertionError(f"{pattern} did not appear in {folder}")


@pytest.fixture(scope="module")
def expected(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> bytes:
    """The weights of the training that nothing interrupted."""
    done = command(*arguments(small_model, small_data, tmp_path_factory.mktemp("whole")), "--json")
    assert done.code == 0, done.err
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
    wait_for(tmp_path, "train/*.part/checkpoints/checkpoint-*/seal.json")
    process.send_signal(getattr(signal, name))
    out, err = process.communicate()
    assert out == ""
    if name == "SIGINT":
        assert process.returncode == 130
        assert err == (
            "\nStopping after this step; once more stops at once.\n"
            "\nStopped. Run the same command again to go on from the last finished stage or checkpoint.\n"
        )
    else:
        assert process.returncode == -signal.SIGKILL
    assert not list(tmp_path.rglob("stage.json"))
    part = next((tmp_path / "train").glob("*.part"))
    steps = len((part / "log.jsonl").read_text().splitlines())
    assert steps > 0

    done = command(*given, "--json")
    assert done.code == 0, done.err
    model = Path(done.json["trained"][0]["model"])
    assert (model / "model.safetensors").read_bytes() == expected
    assert not part.exists()
