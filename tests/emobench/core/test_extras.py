"""A minimal installation: the packages of the extras are hidden from Python in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from emobench.core.extras import EXTRAS, MissingPackageError, extra_of, missing_packages_explained, require

HIDE = """
import importlib.metadata as metadata
from importlib.machinery import PathFinder

MODULES, PACKAGES = {modules!r}, {packages!r}
find, distribution = PathFinder.find_spec, metadata.Distribution.from_name


def find_spec(cls, name, path=None, target=None):
    return None if name.partition(".")[0] in MODULES else find(name, path, target)


def from_name(name):
    if name.lower().replace("_", "-") in PACKAGES:
        raise metadata.PackageNotFoundError(name)
    return distribution(name)


PathFinder.find_spec = classmethod(find_spec)
metadata.Distribution.from_name = from_name
"""
PYTHON = """
import sys
import emobench

board = emobench.load_board({board!r})
assert len(board) == {entries}
assert emobench.compare(*{ids!r}, leaderboard={board!r}).comparisons
for name in ("attach", "objective", "StatisticsObjective"):
    try:
        getattr(emobench, name)
    except emobench.core.errors.ConfigError as error:
        print(error)
"""
COMMANDS = """
import contextlib
import io
import json
import sys

from emobench.cli import main

results = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["emobench", *words]
    err, code = io.StringIO(), 0
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as stopped:
            code = stopped.code or 0
    results.append((code, err.getvalue()))
print(json.dumps(results))
"""
STUDIES = Path(__file__).parents[3] / "leaderboards/studies/smollm2"
IDS = ["8055b2f60fd9", "1d1287c865af"]
LIGHT = [
    "--help",
    "run --help",
    "compare 8055b2f60fd9 1d1287c865af --leaderboard studies:smollm2",
    "leaderboard show --leaderboard studies:smollm2",
    "leaderboard verify --leaderboard studies:smollm2",
    "leaderboard export 8055b2f60fd9 --to every-eval-ever --leaderboard studies:smollm2",
    "suites list",
    "tasks show sst2",
    "objectives list",
    "settings",
    "doctor",
]
MISSING = [
    ("leaderboard site pages", "itables", "site"),
    ("run --dry-run", "torch", "eval"),
    ("leaderboard pull hf://datasets/a/b", "huggingface_hub", "hub"),
    ("train --objective emo", "torch", "eval"),
    ("evaluate --model gpt2", "torch", "eval"),
    ("objectives check emo", "torch", "eval"),
    ("kinds check icl", "torch", "eval"),
    ("metrics check rouge", "torch", "eval"),
    ("judges check alpaca-eval", "alpaca-eval", "judges"),
]


if "torch" in {Requirement(text).name for text in requires("emobench") or () if "extra" not in text}:
    pytest.skip("the installed metadata are older than pyproject.toml: pip install -e .", allow_module_level=True)


def _asked(extra: str) -> set[str]:
    """Return the packages of an extra; of "", those of the minimal installation."""
    asked = (Requirement(text) for text in requires("emobench") or ())
    return {canonicalize_name(one.name) for one in asked if not one.marker or one.marker.evaluate({"extra": extra})}


@pytest.fixture(scope="module")
def minimal(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process that finds no package of an extra."""
    packages = _asked("all") - _asked("")
    modules = {
        module for module, names in packages_distributions().items() if packages & {canonicalize_name(n) for n in names}
    }
    folder = tmp_path_factory.mktemp("hidden")
    (folder / "sitecustomize.py").write_text(HIDE.format(modules=modules, packages=packages), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(folder)}


def _python(minimal: dict[str, str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words], env=minimal, cwd=folder, capture_output=True, text=True, check=False
    )


def test_results_in_python_need_no_extra(minimal: dict[str, str], tmp_path: Path) -> None:
    entries = len(list(STUDIES.glob("*/*.json")))
    done = _python(minimal, tmp_path, "-c", PYTHON.format(board=str(STUDIES), ids=IDS, entries=entries))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("pip install 'emobench[train]'") == 3


@pytest.fixture(scope="module")
def done(minimal: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Return the exit code and the standard error of each command; all run in one process."""
    given = [*LIGHT, *(words for words, _, _ in MISSING)]
    commands = json.dumps([words.split() for words in given])
    process = _python(minimal, tmp_path_factory.mktemp("minimal"), "-c", COMMANDS, commands)
    assert process.returncode == 0, process.stderr
    return dict(zip(given, map(tuple, json.loads(process.stdout)), strict=True))


@pytest.mark.parametrize("words", LIGHT)
def test_light_commands_need_no_extra(done: dict[str, tuple[int, str]], words: str) -> None:
    code, err = done[words]
    assert code == 0, err


@pytest.mark.parametrize(("words", "package", "extra"), MISSING)
def test_a_missing_package_is_named_with_its_extra(
    done: dict[str, tuple[int, str]], words: str, package: str, extra: str
) -> None:
    code, err = done[words]
    assert code == 2, err
    assert package in err
    assert f"pip install 'emobench[{extra}]'" in " ".join(err.split())
    assert "does not import" not in err


def test_the_extra_of_a_package() -> None:
    assert extra_of("faiss_cpu") == "eval"
    assert extra_of("itables") == "site"
    assert extra_of("openai") == "judges"
    assert extra_of("pandas") == "frames"
    assert extra_of("huggingface-hub") == "hub"
    assert extra_of("torch") == "eval"
    assert extra_of("torch", "train") == "train"
    assert extra_of("numpy") is None


def test_the_base_is_light() -> None:
    assert not _asked("") & {"torch", "transformers", "huggingface-hub", "tokenizers", "scipy", "pandas", "datasets"}


def test_other_missing_modules_keep_their_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), missing_packages_explained():
        import no_such_module  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(MissingPackageError, match=r"the package no_such_module, .* pip install 'emobench\[all\]'"):
        require("no_such_module")


def test_all_brings_each_extra() -> None:
    for extra in EXTRAS:
        assert _asked(extra) <= _asked("all")
