"""Killed at random moments of generation and metrics, a run ends in the same entry as one that nothing disturbed.

Processes are forks of one that has done the whole job before, so that kills hit the job and no imports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

KILLS, SEED = 5, 159
"""Each kill comes at a share, drawn with the seed, of the seconds of CPU that the undisturbed job took."""

PROGRAM = """
import json, os, random, signal, sys, time
from pathlib import Path
import emobench.cli

def do(words):
    sys.argv = ["emobench", *words]
    try:
        emobench.cli.main()
    except SystemExit as stopped:
        return stopped.code or 0
    return 0

def start(words):
    child = os.fork()
    if not child:
        os._exit(do(words))
    return child

def finish(words):
    _, status, used = os.wait4(start(words), 0)
    assert status == 0, status
    return used.ru_utime + used.ru_stime

def spent(child):
    ticks = open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

def kill(words, seconds):
    # Returns what was begun, and how many texts were written, when the child had had its seconds; None if it ended.
    child = start(words)
    while spent(child) < seconds and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if not os.WIFSIGNALED(status):
        assert status == 0, status
        return None
    runs = Path(words[words.index("--runs") + 1])
    texts = [len(path.read_text().splitlines()) for path in runs.glob("generate/*/samples.jsonl")]
    return [sorted(path.parent.name for path in runs.glob("*/*.part")), texts]

whole, timed, places, count, seed = json.loads(sys.argv[1])
out = os.dup(1)
os.dup2(2, 1)
assert do(whole) == 0
seconds, draw, kills, place = finish(timed), random.Random(seed).random, [], 0
while len(kills) < count:
    killed = kill(places[place], draw() * seconds)
    place += killed is None  # it had ended: another job is killed next
    kills += [] if killed is None else [killed]
finish(places[place])
os.write(out, json.dumps([seconds, kills, place]).encode())
"""


def words(model: Path, data: Path, folder: Path) -> list[str]:
    given = ["evaluate", "--model", model, "--data-dir", data, "--suite", "lm-quick", "--offline", "--quiet"]
    places = ["--runs", folder / "runs", "--leaderboard", folder / "board"]
    settings = ["prefix=4", "continuation=16", "max_length=32", "sampling.samples=5", "mauve.seeds=[0]"]
    return [*map(str, given + places), *(word for text in settings for word in ("--set", f"generation.{text}"))]


def result(folder: Path) -> dict[str, Any]:
    """Return what a run ended in: the numbers, and the digests of all that is kept of it."""
    (entry,) = (json.loads(path.read_text()) for path in (folder / "board").rglob("[0-9a-f]*.json"))
    return {name: entry[name] for name in ("metrics", "missing", "protocols", "runs", "supersedes")}


def test_five_kills_end_in_the_same_entry(small_model: Path, small_data: Path, tmp_path: Path) -> None:
    # A job that ends before its signal makes place for another one.
    folders = [tmp_path / name for name in ("whole", "timed", *(f"killed {i}" for i in range(10 * KILLS)))]
    whole, timed, *places = [words(small_model, small_data, folder) for folder in folders]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([whole, timed, places, KILLS, SEED])],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seconds, kills, last = json.loads(done.stdout)
    print(seconds, kills, last)
    assert len(kills) == KILLS
    assert any(begun for begun, _ in kills)  # not all while it was planned
    expected, *others = map(result, folders[: 3 + last])
    assert all(other == expected for other in others)
    assert not list(tmp_path.rglob("*.part"))
