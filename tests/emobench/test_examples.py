"""The examples of the README and the guides work as they are printed.

Every option of every `emobench` command must exist. A block after `<!-- example: run -->` is run as it is, in a folder
with a small board and its runs; one after `<!-- example: dry-run -->` is planned, since it needs a GPU, downloads or
hours. Python blocks that begin with a file's name are files of that folder; those after `<!-- example: script -->` are
run with a small model in the place of the one on the hub.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
READMES = [ROOT / place / "README.md" for place in ("", "plugins", "tasks")]
GUIDES = [page for folder in ("guides", "evidence", "api") for page in sorted(ROOT.glob(f"docs/{folder}/*.md"))]
QUICK = (
    *("--suite", "lm-quick", "--limit", "20", "--seed", "0", "--quiet"),
    *("--set", "recipe.max_length=16", "--set", "recipe.batch=8", "--set", "recipe.max_tokens=null"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "generation.max_length=16"),
)


HUB = "HuggingFaceTB/SmolLM2-135M"


class Block(NamedTuple):
    mark: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        return [line for line in self.text.splitlines() if line.startswith("emobench ")] if not self.language else []


def _blocks(page: Path) -> list[Block]:
    fenced = r"(?:^<!-- example: ([\w-]+) -->\n)?^```([\w{}]*)[^\n]*\n(.*?)^```$"
    return [Block(*found) for found in re.findall(fenced, page.read_text(), re.MULTILINE | re.DOTALL)]


BLOCKS = [block for page in (*READMES, *GUIDES) for block in _blocks(page)]
FILES = {found[1]: block.text for block in BLOCKS if (found := re.match(r"# ([\w/]+\.(?:py|yaml))\n", block.text))}
RUN = next(line for block in BLOCKS for line in block.commands if "./my_loss.py:Truncated(" in line)


def _marked(mark: str) -> list[str]:
    return [line for block in BLOCKS if block.mark == mark for line in block.commands]


@pytest.fixture(scope="module")
def workplace(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder with the files of the examples, where the README's own command, and `emo`, have been run."""
    folder, before = tmp_path_factory.mktemp("workplace"), Path.cwd()
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    os.chdir(folder)
    places = ("--model", str(small_model), "--data-dir", str(small_data))
    done = command(*shlex.split(RUN)[1:], "--objective", "emo", *places, *QUICK, "--json").ok()
    objectives = [(entry["objective"]["name"], entry["objective"]["params"]) for entry in done.json["entries"]]
    assert objectives[:2] == [("mle", {}), ("truncated", {"nats": 6.0})]
    yield folder
    os.chdir(before)


SCRIPTS = {block.text.split()[1]: block.text for block in BLOCKS if block.mark == "script"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_runs(
    name: str, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "import trl" in SCRIPTS[name] or "from trl" in SCRIPTS[name]:
        pytest.importorskip("trl")
    assert HUB in SCRIPTS[name]
    (tmp_path / name).write_text(SCRIPTS[name].replace(HUB, str(small_model)))
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        runpy.run_path(name, run_name="__main__")
    assert "demd" in capsys.readouterr().out


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("line", _marked("run"))
def test_an_example_runs(command: Callable[..., Any], line: str) -> None:
    done = command(*shlex.split(line, comments=True)[1:]).ok()
    assert done.out


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("line", _marked("dry-run"))
def test_an_example_is_planned(command: Callable[..., Any], line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command(*words, *(() if "--dry-run" in words else ("--dry-run",))).ok()


def test_the_readmes_objective_has_15_lines_and_keeps_the_contract(
    command: Callable[..., Any], workplace: Path
) -> None:
    assert len(FILES["my_loss.py"].splitlines()) <= 15
    command("objectives", "check", f"{workplace}/my_loss.py:Truncated(nats=6)").ok()


def test_the_kind_of_the_guide_is_run_recorded_and_compared(
    workplace: Path, small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    """The guide's files are a package that is installed next to emobench; nothing of emobench is changed."""
    entry_points = next(block.text for block in BLOCKS if "emobench.kinds" in block.text and block.language == "toml")
    installed = workplace / "my_kind-0.1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: my-kind\nVersion: 0.1\n")
    groups = re.sub(r'project.entry-points."([\w.]+)"', r"\1", entry_points).replace('"', "")
    (installed / "entry_points.txt").write_text(groups)
    environment = {**os.environ, "PYTHONPATH": str(workplace), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def emobench(*arguments: object) -> Any:
        command = [sys.executable, "-m", "emobench", *map(str, arguments), "--json"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    given = ("--suite", "endings", "--model", small_model, "--data-dir", small_data, "--limit", 20, "--seed", 0)
    given += (
        "--objective",
        "mle",
        "--objective",
        "emo",
        "--set",
        "recipe.max_tokens=500",
        "--set",
        "recipe.max_length=16",
    )
    planned = emobench("run", *given, "--dry-run")["plan"]
    assert [line["stage"] for line in planned] == ["train", "train", "evaluate", "evaluate"]
    entries = emobench("run", *given, "--quiet")["entries"]
    assert [list(entry["metrics"]) for entry in entries] == [["endings/accuracy"]] * 2
    assert emobench("compare", "emo", "mle")["comparisons"]


def test_every_example_has_the_options_of_its_command(command: Callable[..., Any]) -> None:
    import typer

    from emobench.cli import app

    root: Any = typer.main.get_command(app)
    helped: dict[tuple[str, ...], str] = {}
    for line in (line for block in BLOCKS for line in block.commands):
        words = shlex.split(line, comments=True)[1:]
        names = [word for word in words if not word.startswith("-")]
        path = tuple(names[: 2 if names and hasattr(root.load(names[0]), "commands") else 1])
        if path not in helped:
            helped[path] = command(*path, "--help").out
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"{re.escape(option)}\b", helped[path]), line
