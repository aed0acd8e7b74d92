"""The door opens: `plugins/emobench-poly`, a package that is no part of emobench, is installed, checked and run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "plugins" / "emobench-poly"
OPTIONS = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "pip", "install", *OPTIONS, "--target", target, PACKAGE], check=True)
    return target


def run(installed: Path, folder: Path, *arguments: object) -> str:
    """Run a module of this environment, with the plugin installed beside it, and return its stdout."""
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_it_is_found(installed: Path, tmp_path: Path) -> None:
    shown = json.loads(run(installed, tmp_path, "emobench", "objectives", "show", "poly", "--json"))
    assert (shown["origin"], shown["slopes"]) == ("emobench-poly 1.0.0", "closed form")
    assert shown["file"] == str(installed / "emobench_poly.py")


def test_its_own_tests_which_check_the_contract_pass(installed: Path, tmp_path: Path) -> None:
    config = ("-c", PACKAGE / "pyproject.toml", "--rootdir", PACKAGE, "-p", "no:cacheprovider", "--quiet")
    run(installed, tmp_path, "pytest", *config, PACKAGE / "tests")


def test_it_trains_a_model(installed: Path, tmp_path: Path) -> None:
    from emobench.runs.planning.tiny_models import TINY_MODELS, write_untrained

    write_untrained(TINY_MODELS["tiny-oracle"], tmp_path / "model")
    small = ("recipe.epochs=1", "recipe.max_tokens=4096", "recipe.learning_rate=1e-2", "mauve.seeds=[0]")
    arguments = (
        *("run", "--model", tmp_path / "model", "--seed", 0, "--limit", 40, "--offline", "--quiet"),
        *("--objective", "poly(epsilon=-0.5)", "--runs", "runs", "--leaderboard", "board"),
        *(word for setting in small for word in ("--set", setting)),
    )
    run(installed, tmp_path, "emobench", *arguments)
    (path,) = (tmp_path / "board").rglob("*.json")
    entry = json.loads(path.read_text())
    assert (entry["objective"]["name"], entry["objective"]["params"]) == ("poly", {"epsilon": -0.5})
    assert entry["missing"] == {}
    lines = [
        json.loads(line) for log in (tmp_path / "runs").rglob("log.jsonl") for line in log.read_text().splitlines()
    ]
    # The part that the objective logs: 1 - q_t / 2, and q_t is small in an untrained model.
    weights = [line["weight"] for line in lines if "weight" in line]
    assert weights
    assert all(0.5 <= weight <= 1 for weight in weights)
    assert weights[0] > 0.95
