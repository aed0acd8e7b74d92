"""A kind of task that is no part of emobench, `packages/emobench-beginnings`: installed, run, recorded and compared."""

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
    from emobench.pipeline.planning.tiny_models import TINY_MODELS, write_untrained

    place = tmp_path_factory.mktemp("work")
    write_untrained(TINY_MODELS["tiny-oracle"], place / "model")
    return place


def emobench(installed: Path, folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "COLUMNS": "500"}
    command = [sys.executable, "-m", "emobench", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def run(installed: Path, folder: Path, *more: object) -> Any:
    settings = (word for setting in SMALL for word in ("--set", setting))
    given = ("run", "--suite", "beginnings", "--model", "model", "--limit", 30, "--offline", *settings)
    done = emobench(
        installed,
        folder,
        *given,
        "--objective",
        "mle",
        "--objective",
        "tailr",
        "--leaderboard",
        "board",
        "--json",
        *more,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_its_task_and_its_settings_are_known(installed: Path, folder: Path) -> None:
    shown = json.loads(emobench(installed, folder, "tasks", "show", "beginnings", "--json").stdout)
    assert shown["rules"] == {"tokens": 6, "limit": None}
    slip = emobench(installed, folder, "run", "--suite", "beginnings", "--model", "model", "--set", "begining.tokens=3")
    assert slip.returncode == 2
    assert "did you mean 'beginnings'?" in slip.stderr
    unused = emobench(installed, folder, "run", "--model", "model", "--offline", "--set", "beginnings.tokens=3")
    assert unused.returncode == 2
    assert "no task here is of kind 'beginnings'" in unused.stderr


def test_it_is_planned_run_recorded_and_compared(installed: Path, folder: Path) -> None:
    planned = run(installed, folder, "--dry-run")
    evaluations = [line for line in planned["plan"] if line["stage"] == "evaluate"]
    assert [(line["examples"], line["tokens"]) for line in evaluations] == [(30, 180), (30, 180)]
    run(installed, folder)
    entries = [json.loads(path.read_text()) for path in (folder / "board").rglob("*.json")]
    assert {entry["objective"]["name"] for entry in entries} == {"mle", "tailr"}
    for entry in entries:
        assert entry["missing"] == {}
        metric = entry["metrics"]["beginnings/ppl_beginning"]
        assert 1 < metric["mean"] < 513  # the language has 513 symbols
        assert metric["n"] == 30
    compared = emobench(installed, folder, "compare", "mle", "tailr", "--leaderboard", "board", "--json")
    assert compared.returncode == 0, compared.stderr
    assert "beginnings/ppl_beginning" in compared.stdout


def test_its_package_is_part_of_the_keys(installed: Path, folder: Path) -> None:
    """Another version of the package generates anew; a built-in kind's keys hold no such fact."""
    facts = [json.loads(path.read_text()) for path in (folder / "runs" / "generate").rglob("stage.json")]
    assert facts
    for one in facts:
        kind = one.get("facts", one)["kind"]
        assert kind["packages"]["emobench-beginnings"] == "1.0.0"
        assert len(kind["source"]) == 64
