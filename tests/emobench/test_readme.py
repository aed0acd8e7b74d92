"""What the README shows works as it stands there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

README = (Path(__file__).parents[2] / "README.md").read_text()
QUICK = (
    *("--suite", "lm-quick", "--limit", "20", "--seed", "0", "--quiet", "--json"),
    *("--set", "recipe.max_length=16", "--set", "recipe.batch=8", "--set", "recipe.max_tokens=null"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "generation.max_length=16"),
)


def _blocks(language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [text for name, text in fenced if name == language]


def _objective_file() -> str:
    return next(block for block in _blocks("python") if block.startswith("# my_loss.py"))


def test_the_objective_has_fifteen_lines() -> None:
    assert len(_objective_file().splitlines()) <= 15


def test_the_objective_runs_with_the_readmes_command(
    command: Callable[..., Any],
    small_model: Path,
    small_data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_loss.py").write_text(_objective_file())
    check, run = next(block for block in _blocks("") if "my_loss.py:Truncated(" in block).splitlines()
    checked = command(*shlex.split(check)[1:])
    assert checked.code == 0, checked.out + checked.err
    given = shlex.split(run)[2:]
    finished = command("run", *given, "--model", str(small_model), "--data-dir", str(small_data), *QUICK)
    assert finished.code == 0, finished.err
    entries = finished.json["entries"]
    assert [entry["objective"]["name"] for entry in entries] == ["mle", "truncated"]
    assert entries[1]["objective"]["params"] == {"nats": 6.0}


def test_the_objective_keeps_the_contract(tmp_path: Path) -> None:
    from emobench.registry import load_objective
    from emobench.testing import check_objective

    file = tmp_path / "my_loss.py"
    file.write_text(_objective_file())
    check_objective(load_objective(f"{file}:Truncated(nats=6)").objective)
    check_objective(load_objective(f"{file}:Truncated").objective)


# What a command prints names others in `...`.
COMMANDS = [line for block in _blocks("") for line in block.splitlines() if re.search(r"(?<!`)emobench ", line)]


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_has_the_options_that_the_readme_gives(command: Callable[..., Any], line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    names = [word for word in words if not word.startswith("-")]
    path = names[: 2 if names[0] in ("leaderboard", "objectives", "tasks", "suites", "models") else 1]
    shown = command(*path, "--help")
    assert shown.code == 0, shown.err
    for option in (word for word in words if word.startswith("--")):
        assert option in shown.out


def test_what_is_said_of_machines_is_what_was_measured() -> None:
    results = Path(__file__).parents[1] / "benchmarks" / "results" / "machines-cpu.json"
    first, *rounding, seed = rows = json.loads(results.read_text())["rows"]
    assert [row["variant"] for row in rows] == ["1 thread", "2 threads", "AVX2", "another seed"]

    def most(*others: dict[str, float]) -> tuple[float, float]:
        """Return how far the weights moved, in percent, and the cross-entropy, in nats."""
        nats = [abs(row["forward_cross_entropy"] - first["forward_cross_entropy"]) for row in others]
        return 100 * max(row["weights_moved"] for row in others), max(nats)

    (moved, nats), (by_seed, nats_by_seed) = most(*rounding), most(seed)
    said = (
        f"training by {moved:.1g} % and its cross-entropy by {nats:.0e} nats; another seed moves them by "
        f"{by_seed:.2g} % and by {nats_by_seed:.0e}"
    )
    assert said in " ".join(README.split())
