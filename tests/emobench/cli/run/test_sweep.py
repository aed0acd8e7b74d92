"""`emobench sweep`: each cell is made once, failures stop nothing else, and the entries are those of `emobench run`."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from emobench.cli.sweep import SHOWN, _show_status
from emobench.runs.execution.reporter import Progress, Silent

pytestmark = pytest.mark.slow

SWEEP = """
suite = "lm-quick"
limit = 8
model = "{model}"
data_dir = "{data}"

[set]
"generation.max_length" = 32
"generation.prefix" = 4
"generation.continuation" = 8
"mauve.seeds" = [0]
"recipe.max_length" = 32
"recipe.max_tokens" = 1024

[grid]
objective = ["mle", "./broken.py:Broken"]
seed = [0]
"recipe.learning_rate" = [1e-4, 1e-3]

[[skip]]
objective = "./broken.py:Broken"
"recipe.learning_rate" = 1e-3
"""
BROKEN = """
import emobench

class Broken(emobench.StatisticsObjective):
    name = "broken"
    version = 1

    def loss(self, s):
        raise ValueError("broken on purpose")
"""


@pytest.fixture
def sweep(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """What runs `emobench sweep VERB` on a sweep of three rows, of which one fails."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    Path("sweep.toml").write_text(SWEEP.format(model=small_model, data=small_data))
    Path("broken.py").write_text(BROKEN)

    def run(verb: str, *more: object) -> Any:
        places = () if verb == "status" else ("--leaderboard", "board", "--offline")
        return command("sweep", verb, "sweep.toml", "--runs", "runs", *places, *more)

    return run


def test_a_sweep_is_planned_run_and_run_again(
    sweep: Callable[..., Any], command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entries are those of `emobench run`."""
    plan = sweep("run", "--dry-run", "--json").ok().json
    assert plan["cells"] == 3
    assert [one["totals"]["unknown"] for one in plan["requests"]] == [0, 0]
    assert not Path("runs").exists()
    before = sweep("status")
    assert (before.code, "runs has no such sweep" in before.err) == (2, True)

    first = sweep("run", "--processes", 2, "--json")
    assert first.code == 1
    assert "1 of 3 entries failed" in first.err
    assert len(first.json["entries"]) == 2
    (failed,) = first.json["failed"]
    assert (failed["settings"], failed["label"]) == ("recipe.learning_rate=0.0001", "broken")
    assert "ValueError: broken on purpose" in failed["reason"]
    states = {row["label"] + row["settings"]: row["state"] for row in sweep("status", "--json").json["rows"]}
    assert states == {
        "mlerecipe.learning_rate=0.0001": "done",
        "brokenrecipe.learning_rate=0.0001": "failed",
        "mlerecipe.learning_rate=0.001": "done",
    }
    table = sweep("status").ok().out
    assert "3 entries: 2 done, 1 failed" in table
    assert "broken on purpose" in table

    times = {path: path.stat().st_mtime_ns for path in Path("runs/train").glob("*/seal.json")}
    assert len(times) == 2
    reports: list[tuple[str, int, int]] = []

    def work(self: Silent, title: str, unit: str) -> AbstractContextManager[Progress]:
        return nullcontext(lambda done, total: reports.append((title, done, total)))

    monkeypatch.setattr(Silent, "work", work)
    again = sweep("run", "--quiet", "--json")
    assert again.code == 1
    # Rows that were finished before do not count as work of this command: its rate would be too high.
    assert [report for report in reports if report[0] == "sweep"] == [("sweep", done, 3) for done in (2, 2, 2, 3)]
    assert {path: path.stat().st_mtime_ns for path in Path("runs/train").glob("*/seal.json")} == times
    assert {one["id"] for one in again.json["entries"]} == {one["id"] for one in first.json["entries"]}

    (mine,) = (one for one in first.json["entries"] if one["recipe"]["learning_rate"] == 1e-3)
    settings = tomllib.loads(Path("sweep.toml").read_text())
    words = shlex.split(mine["source"]["command"].replace("./small", settings["model"]))[1:]  # without places
    words[words.index("--data-dir") + 1] = settings["data_dir"]
    (alone,) = command(*words, "--offline", "--runs", "alone", "--leaderboard", "other", "--json").ok().json["entries"]
    assert alone["metrics"] == mine["metrics"]
    assert [run["key"] for run in alone["runs"]] == [run["key"] for run in mine["runs"]]


def test_a_sweep_with_a_name_that_does_not_exist_begins_nothing(sweep: Callable[..., Any]) -> None:
    text = Path("sweep.toml").read_text()
    Path("sweep.toml").write_text(text.replace('"./broken.py:Broken"', '"emoo"').replace("1e-3]", "1e-3, 1e-2]"))
    done = sweep("run")
    assert done.code == 2
    assert "requests of the sweep cannot run" in done.err
    assert "There is no objective 'emoo'; did you mean 'emo'?" in done.err
    assert not list(Path("runs").rglob("*.safetensors"))


def test_the_status_of_a_large_sweep_shows_failures_first(capsys: pytest.CaptureFixture[str]) -> None:
    def status(number: int) -> dict[str, Any]:
        failed = "no memory" if number == SHOWN + 2 else None
        row = {"label": "mle", "model": "m", "settings": f"n={number}", "stages": ["train/k"], "made": 0}
        return {**row, "failed": failed, "state": "failed" if failed else "to do"}

    _show_status([status(number) for number in range(SHOWN + 3)])
    out = capsys.readouterr().out
    assert f"{SHOWN + 3} entries: 1 failed, {SHOWN + 2} to do" in out
    assert "... and 3 more; --json has all." in out
    assert "no memory" in out
    assert f"n={SHOWN - 2} " in out
    assert f"n={SHOWN - 1} " not in out
