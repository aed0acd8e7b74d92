"""`emobench run FILE.toml`: the options of a command from a file, and an entry as such a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.runs.dry_run import DONE

FILE = """
suite = "oracle-language"
objective = ["mle", "emo"]
seed = [0, 1]
limit = 8
from_scratch = false
data-dir = []

[set]
recipe.max_tokens = 20000
recipe.learning_rate = 1e-3
"""
FLAGS = (
    *("--objective", "mle", "--objective", "emo", "--seed", 0, "--seed", 1, "--limit", 8),
    *("--set", "recipe.max_tokens=20000", "--set", "recipe.learning_rate=1e-3"),
)


@pytest.fixture
def planned(command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What returns a dry run's plan of a file's text, with options beside it."""
    monkeypatch.chdir(tmp_path)

    def plan(text: str, *options: object) -> Any:
        Path("run.toml").write_text(text)
        return command("run", "run.toml", *options, "--dry-run", "--json").ok().json["plan"]

    return plan


def test_a_file_takes_what_the_flags_take(command: Callable[..., Any], planned: Callable[..., Any]) -> None:
    assert planned(FILE) == command("run", *FLAGS, "--dry-run", "--json").ok().json["plan"]
    assert planned(FILE + "[set.recipe.lora]\nrank = 4\n", "--set", "recipe.lora=false") == planned(FILE)


def test_options_beside_a_file_override_it(command: Callable[..., Any], planned: Callable[..., Any]) -> None:
    beside = ("--objective", "mle", "--seed", 3, "--limit", 4, "--set", "recipe.max_tokens=9000")
    flags = ("--objective", "mle", "--seed", 3, "--limit", 4, *FLAGS[-2:], "--set", "recipe.max_tokens=9000")
    assert planned(FILE, *beside) == command("run", *flags, "--dry-run", "--json").ok().json["plan"]


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("suites = 'nlu'", ["run.toml", "suites", "did you mean 'suite'"]),
        ("lr = 1", ["lr", "set.recipe.learning_rate"]),
        ("torch_dtype = 'x'", ["torch_dtype", "dtype"]),
        ("recipe.epochs = 1", ["recipe", "set.recipe"]),
        ("[set]\nlr = 1", ["lr", "recipe.learning_rate"]),
        ("[set]\nrecipes.epochs = 1", ["recipes", "recipe"]),
        ("[grid]\nseed = [0]", ["grid", "emobench sweep run run.toml"]),
        ("set = 3", ["`set`", "3"]),
        ("seed = 1.5", ["1.5"]),
        ("seed = [[1]]", ["`seed`"]),
        ("suite = ['nlu']", ["`suite`"]),
        ("quiet = 3", ["`quiet`", "true or false"]),
        ("limit = 1979-05-27", ["run.toml"]),
        ("limit = inf", ["run.toml"]),
        ("limit", ["run.toml"]),
        ("x = " + "[" * 5000, ["run.toml"]),
    ],
)
def test_a_file_that_cannot_be_used(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, texts: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(text)
    command("run", "run.toml", "--dry-run").refused(*texts)
    command("run", "none.toml").refused("none.toml")


def test_an_entry_exports_the_options_that_repeat_it(
    written: Any, small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    """Their stages have the keys of the entry's: all of them are finished."""
    for entry in (written.mle, written.pretrained):
        command, file = written.command, tmp_path / f"{entry['id']}.toml"
        place = ("--to", "toml", "--leaderboard", written.root)
        command("leaderboard", "export", entry["id"], *place, "--out", tmp_path).ok()
        assert file.read_text() == command("leaderboard", "export", entry["id"], *place).ok().out
        beside = ("--model", small_model, "--data-dir", small_data, "--runs", written.runs, "--offline")
        plan = command("run", file, *beside, "--dry-run", "--json").ok().json["plan"]
        assert plan
        assert {line["state"] for line in plan} == {DONE}
        assert {line["objective"] for line in plan} == {entry["objective"]["name"]}
    command("leaderboard", "export", "published:emo-table3/llama-7b/emo", "--to", "toml").refused("published")
