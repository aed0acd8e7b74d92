"""A package with a kind of task and a metric, `packages/emobench-beginnings`: installed, run, recorded and compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parent / "packages" / "emobench-beginnings"
OPTIONS = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
SMALL = ("recipe.epochs=1", "recipe.max_tokens=4096", "recipe.learning_rate=1e-2")
SIGNATURE = ("run", "--suite", "beginnings", "--model", "model", "--limit", 30, "--offline")
OUT = ("--leaderboard", "board", "--json")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "pip", "install", *OPTIONS, "--target", target, PACKAGE], check=True)
    return target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an untrained model."""
    from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

    place = tmp_path_factory.mktemp("work")
    write_untrained(TINY_MODELS["tiny-oracle"], place / "model")
    return place


def emobench(installed: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    command = [sys.executable, "-m", "emobench", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def run(installed: Path, folder: Path, *more: object) -> Any:
    settings = (word for setting in SMALL for word in ("--set", setting))
    done = emobench(installed, folder, *SIGNATURE, *settings, "--objective", "mle", "--objective", "tailr", *OUT, *more)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_its_task_and_its_settings_are_known(installed: Path, folder: Path) -> None:
    shown = json.loads(emobench(installed, folder, "tasks", "show", "beginnings", "--json").stdout)
    assert shown["rules"] == {"tokens": 6, "limit": None, "weighting": "even"}
    slip = emobench(installed, folder, "run", "--suite", "beginnings", "--model", "model", "--set", "begining.tokens=3")
    assert slip.returncode == 2
    assert "did you mean 'beginnings'?" in slip.stderr
    unused = emobench(installed, folder, "run", "--model", "model", "--offline", "--set", "beginnings.tokens=3")
    assert unused.returncode == 2
    assert "--set beginnings: " in unused.stderr


def test_its_family_has_the_commands_of_every_family(installed: Path, folder: Path) -> None:
    listed = json.loads(emobench(installed, folder, "weightings", "list", "--json").stdout)
    assert [(row["name"], row["third"]) for row in listed] == [("even", "1"), ("fading", "0.25")]
    assert (
        "part: float = 0.9 (default 0.5)"
        in emobench(installed, folder, "weightings", "show", "fading(part=0.9)").stdout
    )
    assert "even: 1 ok." in emobench(installed, folder, "weightings", "check", "even").stdout
    broken = emobench(installed, folder, "weightings", "check", "fading(part=2)")
    assert (broken.returncode, "Its weight at 1 is 2" in broken.stdout) == (1, True)
    made = emobench(installed, folder, "weightings", "new", "my-weighting")
    assert made.returncode == 0, made.stderr
    assert "emobench.weightings" in (folder / "my-weighting" / "pyproject.toml").read_text()
    slip = emobench(
        installed, folder, *SIGNATURE, "--objective", "mle", "--dry-run", "--set", "beginnings.weighting=evn"
    )
    assert (slip.returncode, "did you mean 'even'?" in slip.stderr) == (2, True)
    assert "  weightings " in emobench(installed, folder, "--help").stdout


def test_it_is_planned_run_recorded_and_compared(installed: Path, folder: Path) -> None:
    planned = run(installed, folder, "--dry-run")
    evaluations = [line for line in planned["plan"] if line["stage"] == "evaluate"]
    assert [(line["examples"], line["tokens"]) for line in evaluations[::2]] == [(30, 180), (30, 180)]
    run(installed, folder)
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
    compared = emobench(installed, folder, "compare", "mle", "tailr", "--leaderboard", "board", "--json")
    assert compared.returncode == 0, compared.stderr
    (comparison,) = json.loads(compared.stdout)["comparisons"]
    contrasts = {contrast["metric"]: contrast for contrast in comparison["contrasts"]}
    for metric in ("beginnings/ppl_beginning", "judged/judged"):
        (within,) = contrasts[metric]["within"]  # one seed, prompt by prompt
        assert within["items"] == 30
        assert 0 < within["p"] <= 1
    check_keys(folder)


def check_keys(folder: Path) -> None:
    """The package is part of the keys of what it computes.

    Another version of the kind generates anew, another one of the metric only scores anew.
    """
    facts = {
        (stage, found["task"]["name"]): found
        for stage in ("generate", "score")
        for found in (json.loads(file.read_text()) for file in (folder / "runs" / stage).rglob("stage.json"))
    }
    for stage in ("generate", "score"):
        kind = facts[stage, "beginnings"]["kind"]
        assert kind["packages"]["emobench-beginnings"] == "1.0.0"
        assert len(kind["source"]) == 64
        assert "metrics" not in facts[stage, "beginnings"]
        assert facts["generate", "beginnings"]["weighting"]["packages"] == {"emobench-beginnings": "1.0.0"}
        assert "kind" not in facts[stage, "judged"]
    assert "metrics" not in facts["generate", "judged"]
    (metric,) = facts["score", "judged"]["metrics"]
    assert metric["name"] == "judged(question='', yes=baba, no=kaze)"
    assert (metric["packages"]["emobench-beginnings"], len(metric["source"])) == ("1.0.0", 64)
    assert facts["score", "judged"]["models"]["judged.judge"]
    assert facts["score", "judged"]["rules"]["metrics"] == [metric["name"]]
