"""`--processes`: several processes make the stages of a run, and the results are those of one."""

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

SMALL = (
    *("--suite", "lm-quick", "--limit", "8", "--offline", "--seed", "0", "--seed", "1", "--device", "cpu"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "mauve.seeds=[0]", "--set", "recipe.max_length=32", "--runs", "runs", "--leaderboard", "board"),
)
SHORT = ("--set", "recipe.max_tokens=1024")
BROKEN = """
import emobench

class Broken(emobench.StatisticsObjective):
    name = "broken"
    version = 1

    def loss(self, s):
        raise ValueError("broken on purpose")
"""


@pytest.fixture
def given(small_model: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arguments of a run that writes to `runs` and `board` of the working folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # for the processes and for this one
    return [str(word) for word in ("run", "--model", small_model, "--data-dir", small_data, *SMALL)]


def results(folder: Path) -> dict[str, bytes]:
    """Return the weights, samples and per-example results of all stages, by path."""
    names = ("model.safetensors", "samples.jsonl", "examples.jsonl")
    return {str(p.relative_to(folder)): p.read_bytes() for name in names for p in sorted(folder.rglob(name))}


def workers_of(process: int) -> set[int]:
    """Return the running processes that a process started."""
    workers = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            workers.add(int(folder.name))
    return workers


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(happened: Callable[[], Any], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_the_results_are_those_of_one_process(command: Callable[..., Any], given: list[str], tmp_path: Path) -> None:
    """What fails does not stop the others."""
    Path("broken.py").write_text(BROKEN)
    words = (*given, *SHORT, "--objective", "pretrained", "--objective", "mle")
    one = command(*words, "--json").ok().json["entries"]
    Path("runs").rename("alone")
    Path("board").rename("alone-board")
    two = command(*words, "--objective", "./broken.py:Broken", "--processes", "2")
    assert two.code == 1
    assert "ValueError: broken on purpose" in two.err
    assert "failed, and is not recorded" in two.err
    assert "[cpu:0]" in two.err
    assert "[cpu:1]" in two.err
    assert results(tmp_path / "runs") == results(tmp_path / "alone") != {}
    again = command(*words, "--processes", "2", "--json").ok()
    assert "[cpu" not in again.err  # no process was started: all is finished
    for mine, theirs in zip(again.json["entries"], one, strict=True):
        assert mine["metrics"] == theirs["metrics"]
        assert [run["key"] for run in mine["runs"]] == [run["key"] for run in theirs["runs"]]


@pytest.mark.parametrize("killed", ["worker", "run"])
def test_a_process_that_is_killed_is_named_and_all_end_with_the_run(given: list[str], killed: str) -> None:
    words = [sys.executable, "-m", "emobench", *given, "--objective", "mle", "--set", "recipe.epochs=200"]
    process = subprocess.Popen([*words, "--processes", "2"], stderr=subprocess.PIPE, text=True)
    until(lambda: len(list(Path("runs/train").glob("*.part/checkpoints/*/seal.json"))) >= 2 or process.poll())
    assert process.poll() is None, process.communicate()[1]
    workers = workers_of(process.pid)
    assert len(workers) == 2
    os.kill(min(workers) if killed == "worker" else process.pid, signal.SIGKILL)
    err = process.communicate(timeout=120)[1]
    until(lambda: not any(map(is_running, workers)))
    if killed == "worker":
        assert process.returncode == 1
        assert "its training: the process on cpu:" in err
        assert "ended with signal SIGKILL. It may have run out of memory" in err
        assert "Traceback" not in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--processes", "2", "--devices", "0,1"), "give one of them"),
        (("--devices", "0,0"), "--devices is 0,0; expected auto"),
        (("--devices", "gpu"), "--devices is gpu"),
    ],
)
def test_places_that_cannot_be_used(
    command: Callable[..., Any], given: list[str], words: tuple[str, ...], sentence: str
) -> None:
    command(*(word for word in given if word not in ("--device", "cpu")), *words).refused(sentence)
    assert not Path("runs").exists()
