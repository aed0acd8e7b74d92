"""What is shipped: the wheel's files, and that it works from another folder, with the checkout nowhere in sight."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLACES = {"emobench": ROOT, "emobench_objectives": ROOT / "plugins", "emobench_tasks": ROOT / "tasks"}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist, built as an installer builds them."""
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT],
        check=True,
        capture_output=True,
        cwd=out,
    )
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


def shipped() -> set[str]:
    """Return what belongs into the wheel: the three packages' files that are no cache, and the boards that ship."""
    found, boards = set(), ROOT / "leaderboards"
    for name in ("published", "studies"):
        for path in (boards / name).rglob("*"):
            if path.is_file():
                found.add(f"emobench/leaderboard/data/{path.relative_to(boards)}")
    for name, place in PLACES.items():
        for path in (place / name).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(str(path.relative_to(place)))
    return found


def test_the_wheel_holds_the_three_packages_and_nothing_else(built: tuple[Path, Path]) -> None:
    names = {name for name in zipfile.ZipFile(built[0]).namelist() if ".dist-info/" not in name}
    assert names == shipped()
    assert {
        "emobench/data/texts.py",
        "emobench/models/load.py",
        "emobench/leaderboard/entry.schema.json",
        "emobench_objectives/emo.py",
        "emobench_tasks/suites/oracle-language.yaml",
        "emobench_tasks/tasks/lm-quick.yaml",
        "emobench_tasks/recipes/lm-finetune.yaml",
    } <= names
    assert not {name for name in names if name.startswith(("tests/", "plugins/", "tasks/"))}


@pytest.mark.parametrize(("file", "megabytes"), [(0, 8.0), (1, 8.5)], ids=["wheel", "sdist"])
def test_an_archive_stays_within_its_size_budget(built: tuple[Path, Path], file: int, megabytes: float) -> None:
    """Entries of studies, with their examples, are most of both. Raise a budget only for what users need."""
    assert built[file].stat().st_size <= megabytes * 1e6


def test_the_wheel_says_how_it_is_used(built: tuple[Path, Path]) -> None:
    archive = zipfile.ZipFile(built[0])
    info = {name.rpartition("/")[2]: name for name in archive.namelist() if ".dist-info/" in name}
    points = archive.read(info["entry_points.txt"]).decode()
    for line in (
        "emobench = emobench.cli:main",
        *(f"{name} = emobench_objectives.{name}" for name in ("emo", "mixce", "mle", "tailr")),
        "builtin = emobench_tasks",
    ):
        assert line in points
    metadata = archive.read(info["METADATA"]).decode()
    for line in ("Name: emobench", "Requires-Python: >=3.11", "License-Expression: Apache-2.0", "Requires-Dist: torch"):
        assert line in metadata
    assert "LICENSE" in info


def test_the_sdist_holds_what_builds_and_tests_it(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "tests/test_wheel.py"):
        assert name in names
    for name in ("emobench/cli/__init__.py", "plugins/emobench_objectives/mle.py", "tasks/emobench_tasks/__init__.py"):
        assert name in names
    assert not {name for name in names if "__pycache__" in name or name.startswith((".git/", "runs/", "dist/"))}


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check", "--no-warn-script-location")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", target, built[0]], check=True)
    return target


def emobench(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed copy from a folder of its own.

    The checkout is installed here for development by a `.pth` file; without `site` no `.pth` is read, so that only
    the installed copy and the dependencies are on the path.
    """
    dependencies = tuple(site.getsitepackages())
    code = f"""
import sys
sys.path[:0] = [{str(installed)!r}]
sys.path += {list(dependencies)!r}
from importlib.metadata import distribution
import emobench, emobench_objectives, emobench_tasks
for module in (emobench, emobench_objectives, emobench_tasks):
    assert module.__file__.startswith({str(installed)!r}), module.__file__
from emobench.cli import main
sys.argv = ["emobench", *{list(arguments)!r}]
main()
"""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-S", "-P", "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_the_installed_wheel_works_from_another_folder(installed: Path, tmp_path: Path) -> None:
    suites = emobench(installed, tmp_path, "suites", "list", "--json")
    assert suites.returncode == 0, suites.stderr
    assert {suite["name"] for suite in json.loads(suites.stdout)} == {
        path.stem for path in (ROOT / "tasks" / "emobench_tasks" / "suites").glob("*.yaml")
    }
    shown = emobench(installed, tmp_path, "suites", "show", "oracle-language", "--json")
    assert shown.returncode == 0, shown.stderr
    objectives = emobench(installed, tmp_path, "objectives", "list", "--json")
    assert objectives.returncode == 0, objectives.stderr
    rows = {row["name"]: row for row in json.loads(objectives.stdout)}
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    assert rows.keys() == set(entry_points["emobench.objectives"])
    assert not [row for row in rows.values() if row["summary"].startswith("unusable")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "folder"), [("published:", "published"), ("studies:smollm2", "studies/smollm2")])
def test_the_installed_wheel_has_the_boards_that_ship(name: str, folder: str, installed: Path, tmp_path: Path) -> None:
    place = installed / "emobench" / "leaderboard" / "data" / folder
    code = f"import sys; sys.path.insert(0, {str(installed)!r})\nfrom emobench.leaderboard import boards, store\n"
    code += f"root = boards.board_folder({name!r}); print(root, len(store.Leaderboard(root).entries()))"
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(place), "49" if name == "published:" else "56"]


def test_the_installed_wheel_plans_a_run(installed: Path, tmp_path: Path) -> None:
    planned = emobench(installed, tmp_path, "run", "--offline", "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    trained = [line for line in json.loads(planned.stdout)["plan"] if line["stage"] == "train"]
    assert len([line for line in trained if line["objective"]]) == 12
