"""`--processes`: several processes make the stages of a run, and the results are those of one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SMALL = (
    *("--suite", "lm-quick", "--limit", "8", "--offline", "--seed", "0", "--seed", "1", "--device", "cpu"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=8"),
    *("--set", "mauve.seeds=[0]", "--set", "recipe.max_length=32"),
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
    places = ("--runs", "runs", "--leaderboard", "board")
    return [str(word) for word in ("run", "--model", small_model, "--data-dir", small_data, *SMALL, *places)]


def results(folder: Path) -> dict[str, bytes]:
    """Return the weights, samples and per-example results of all stages, by path."""
    names = ("model.safetensors", "samples.jsonl", "examples.jsonl")
    return {str(p.relative_to(folder)): p.read_bytes() for name in names for p in sorted(folder.rglob(name))}


def workers_of(process: int) -> set[int]:
    """Return the running processes that a process started."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == process and state != "Z":
            found.add(int(folder.name))
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(found: Callable[[], Any], seconds: float = 120) -> Any:
    end = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
    return value


@pytest.fixture
def long(given: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A run of two processes whose trainings are long, when both train."""
    words = [*given, "--objective", "mle", "--set", "recipe.epochs=200"]
    process = subprocess.Popen(
        [sys.executable, "-m", "emobench", *words, "--processes", "2"], stderr=subprocess.PIPE, text=True
    )
    until(lambda: len(list(Path("runs/train").glob("*.part/log.jsonl"))) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[1]
    yield process
    process.kill()
    process.wait()


def test_the_results_are_those_of_one_process(command: Callable[..., Any], given: list[str], tmp_path: Path) -> None:
    objectives = ("--objective", "pretrained", "--objective", "mle", "--objective", "emo")
    one = command(*given, *SHORT, *objectives, "--json").ok()
    Path("runs").rename("alone")
    Path("board").rename("alone-board")
    two = command(*given, *SHORT, *objectives, "--processes", "2", "--json").ok()
    assert "[cpu:0]" in two.err
    assert "[cpu:1]" in two.err
    assert results(tmp_path / "runs") == results(tmp_path / "alone") != {}
    for mine, theirs in zip(two.json["entries"], one.json["entries"], strict=True):
        assert mine["metrics"] == theirs["metrics"]
        assert [run["key"] for run in mine["runs"]] == [run["key"] for run in theirs["runs"]]
    again = command(*given, *SHORT, *objectives, "--processes", "2").ok()
    assert "[cpu" not in again.err  # no process was started: all is finished


def test_what_fails_does_not_stop_the_others(command: Callable[..., Any], given: list[str], tmp_path: Path) -> None:
    Path("broken.py").write_text(BROKEN)
    done = command(*given, *SHORT, "--objective", "./broken.py:Broken", "--objective", "mle", "--processes", "2")
    assert done.code == 1
    assert "ValueError: broken on purpose" in done.err
    assert "failed, and is not recorded" in done.err
    assert len(list(Path("board").rglob("*.json"))) == 1  # mle


def test_a_process_that_is_killed_is_named(long: subprocess.Popen[str]) -> None:
    os.kill(min(workers_of(long.pid)), signal.SIGKILL)
    err = long.communicate(timeout=120)[1]
    assert long.returncode == 1
    assert "its training: the process on cpu:" in err
    assert "ended with signal SIGKILL. It may have run out of memory. What it finished is kept" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_the_processes_end_with_the_run(long: subprocess.Popen[str], name: str) -> None:
    workers = workers_of(long.pid)
    assert len(workers) == 2
    long.send_signal(getattr(signal, name))
    err = long.communicate(timeout=120)[1]
    until(lambda: not any(map(is_running, workers)))
    parts = list(Path("runs/train").glob("*.part"))
    assert len(parts) == 2
    if name != "SIGKILL":
        assert long.returncode == 130
        assert err.endswith(
            "Stopped. Run the same command again to go on from the last finished stage or checkpoint.\n"
        )
    assert all(list(part.glob("checkpoints/checkpoint-*/seal.json")) for part in parts)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--processes", "2", "--devices", "0,1"), "give one of them"),
        (("--devices", "0,0"), "--devices is 0,0; expected auto, or GPUs such as 0,1,2,3, each of them once"),
        (("--devices", "gpu"), "--devices is gpu"),
    ],
)
def test_places_that_cannot_be_used(
    command: Callable[..., Any], given: list[str], words: tuple[str, ...], sentence: str
) -> None:
    given = [word for word in given if word not in ("--device", "cpu")]
    done = command(*given, *words)
    assert done.code == 2
    assert sentence in done.err
    assert not Path("runs").exists()
