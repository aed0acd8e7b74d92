"""A package with a kind of task and a metric, `packages/emobench-beginnings`: installed, run, recorded and compared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2] / "packages" / "emobench-beginnings"
OPTIONS = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
RUN = ("run", "--suite", "beginnings", "--model", "model", "--limit", 30, "--offline", "--objective", "mle")
SMALL = [
    "--set",
    "recipe.epochs=1",
    "--set",
    "recipe.max_tokens=4096",
    "--set",
    "recipe.learning_rate=1e-2",
    "--objective",
    "tailr",
]
BOARD = ("--leaderboard", "board", "--json")
COMMANDS = {
    "task": ("tasks", "show", "beginnings", "--json"),
    "slip": ("run", "--suite", "beginnings", "--model", "model", "--set", "begining.tokens=3"),
    "unused": ("run", "--model", "model", "--offline", "--set", "beginnings.tokens=3"),
    "list": ("weightings", "list", "--json"),
    "show": ("weightings", "show", "fading(part=0.9)"),
    "check": ("weightings", "check", "even"),
    "broken": ("weightings", "check", "fading(part=2)"),
    "new": ("weightings", "new", "my-weighting"),
    "evn": (*RUN, "--dry-run", "--set", "beginnings.weighting=evn"),
    "help": ("--help",),
    "plan": (*RUN, *SMALL, *BOARD, "--dry-run"),
    "run": (*RUN, *SMALL, *BOARD),
    "compare": ("compare", "mle", "tailr", *BOARD),
}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an untrained model."""
    from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

    place = tmp_path_factory.mktemp("work")
    write_untrained(TINY_MODELS["tiny-oracle"], place / "model")
    return place


@pytest.fixture(scope="module")
def done(folder: Path, commands: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each command printed."""
    site = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "pip", "install", *OPTIONS, "--target", site, PACKAGE], check=True)
    return dict(zip(COMMANDS, commands(site, *COMMANDS.values(), cwd=folder), strict=True))


def test_its_task_and_its_settings_are_known(done: dict[str, Any]) -> None:
    assert done["task"].json["rules"] == {"tokens": 6, "limit": None, "weighting": "even"}
    assert (done["slip"].code, done["unused"].code) == (2, 2)
    assert "did you mean 'beginnings'?" in done["slip"].err
    assert "--set beginnings: " in done["unused"].err


def test_its_family_has_the_commands_of_every_family(done: dict[str, Any], folder: Path) -> None:
    assert [(row["name"], row["third"]) for row in done["list"].json] == [("even", "1"), ("fading", "0.25")]
    assert "part: float = 0.9 (default 0.5)" in done["show"].out
    assert "even: 1 ok." in done["check"].out
    assert (done["broken"].code, "Its weight at 1 is 2" in done["broken"].out) == (1, True)
    assert done["new"].code == 0
    assert "emobench.weightings" in (folder / "my-weighting" / "pyproject.toml").read_text()
    assert (done["evn"].code, "did you mean 'even'?" in done["evn"].err) == (2, True)
    assert "  weightings " in done["help"].out


def test_it_is_planned_run_recorded_and_compared(done: dict[str, Any], folder: Path) -> None:
    evaluations = [line for line in done["plan"].json["plan"] if line["stage"] == "evaluate"]
    assert [(line["examples"], line["tokens"]) for line in evaluations[::2]] == [(30, 180), (30, 180)]
    assert done["run"].code == 0, done["run"].err
    entries = [json.loads(path.read_text()) for path in (folder / "board").rglob("*.json")]
    assert {entry["objective"]["name"] for entry in entries} == {"mle", "tailr"}
    for entry in entries:
        assert entry["missing"] == {}
        metric = entry["metrics"]["beginnings/ppl_beginning"]
        assert 1 < metric["mean"] < 513  # the language has 513 symbols
        assert metric["n"] == 30
        judged = entry["metrics"]["judged/judged"]
        assert 0 < judged["mean"] < 1
        assert judged["units"] == 30  # so that it is compared prompt by prompt
    (comparison,) = done["compare"].json["comparisons"]
    contrasts = {contrast["metric"]: contrast for contrast in comparison["contrasts"]}
    for metric in ("beginnings/ppl_beginning", "judged/judged"):
        ((_, within),) = contrasts[metric]["within"]  # one seed, prompt by prompt
        assert within["items"] == 30
        assert 0 < within["p"] <= 1


def test_the_package_is_part_of_the_keys_of_what_it_computes(done: dict[str, Any], folder: Path) -> None:
    """Another version of the kind generates anew, another one of the metric only scores anew."""
    facts = {}
    for stage in ("generate", "score"):
        for file in (folder / "runs" / stage).rglob("stage.json"):
            own = json.loads(file.read_text())
            facts[stage, own["task"]["name"]] = own
    version = {"emobench-beginnings": "1.0.0"}
    for stage in ("generate", "score"):
        kind = facts[stage, "beginnings"]["kind"]
        assert kind["packages"].items() >= version.items()
        assert len(kind["source"]) == 64
        assert "metrics" not in facts[stage, "beginnings"]
        assert "kind" not in facts[stage, "judged"]
    assert facts["generate", "beginnings"]["weighting"]["packages"] == version
    assert "metrics" not in facts["generate", "judged"]
    (metric,) = facts["score", "judged"]["metrics"]
    assert metric["name"] == "judged(question='', yes=baba, no=kaze)"
    assert metric["packages"].items() >= version.items()
    assert len(metric["source"]) == 64
    assert facts["score", "judged"]["models"]["judged.judge"]
    assert facts["score", "judged"]["rules"]["metrics"] == [metric["name"]]
