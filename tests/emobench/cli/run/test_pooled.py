"""Seeds that were run one by one are one row, with the numbers of an entry that was recorded at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify

GIVEN = (
    *("--suite", "lm-quick", "--objective", "mle", "--limit", "12", "--offline", "--json"),
    *("--set", "mauve.seeds=[0,1]", "--set", "generation.sampling.samples=2", "--set", "generation.max_length=32"),
    *("--set", "generation.prefix=4", "--set", "generation.continuation=8", "--set", "recipe.max_length=32"),
)
Run = Callable[..., Any]


@pytest.fixture(scope="module")
def shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stages, which all tests share."""
    return tmp_path_factory.mktemp("pooled") / "runs"


@pytest.fixture
def run(command: Run, small_data: Path, small_model: Path, shared_runs: Path) -> Run:
    """What runs seeds on a board."""

    def on(board: Path, *seeds: int, runs: Path = shared_runs, more: tuple[object, ...] = ()) -> Any:
        words = [word for seed in seeds for word in ("--seed", seed)]
        places = ("--model", small_model, "--data-dir", small_data, "--runs", runs, "--leaderboard", board)
        return command("run", *GIVEN, *words, *places, *more).ok()

    return on


def entry_of(done: Any) -> dict[str, Any]:
    (entry,) = done.json["entries"]
    return entry


def test_one_by_one_is_the_same_as_at_once(run: Run, shared_runs: Path, tmp_path: Path, command: Run) -> None:
    together = entry_of(run(tmp_path / "together", 0, 1, 2))
    board = tmp_path / "board"
    assert entry_of(run(board, 1))["seeds"] == [1]
    assert entry_of(run(board, 2))["seeds"] == [1, 2]
    last = run(board, 0)
    assert last.err.count("pooled with entry") == 1
    assert ": seed 1, 2" in last.err
    apart = entry_of(last)
    assert any(metric["components"] for metric in together["metrics"].values())
    for name in together.keys() - {"id", "supersedes", "source", "provenance", "cost", "runs"}:
        assert apart[name] == together[name], name  # digit for digit
    assert [one["key"] for one in apart["runs"]] == [one["key"] for one in together["runs"]]
    assert apart["cost"]["tokens"] == together["cost"]["tokens"]
    assert [row.id for row in Leaderboard(board).rows()] == [apart["id"]]
    assert verify(Leaderboard(board), shared_runs)[1] == []
    for seed in (0, 1, 2):  # nothing new is recorded
        again = run(board, seed)
        assert entry_of(again)["id"] == apart["id"]
        assert f"in entry {apart['id']} already" in again.err
    assert len(Leaderboard(board).rows(superseded=True)) == 3
    (group,) = command("leaderboard", "show", "--leaderboard", board, "--json").ok().json["groups"]
    assert [entry["seeds"] for entry in group["entries"]] == [[0, 1, 2]]


def test_another_recipe_is_another_row(run: Run, tmp_path: Path) -> None:
    run(tmp_path, 0)
    assert entry_of(run(tmp_path, 1, more=("--set", "recipe.learning_rate=1e-3")))["seeds"] == [1]
    assert len(Leaderboard(tmp_path).rows()) == 2


def test_other_packages_are_another_row_and_no_seed_counts_twice(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = entry_of(run(tmp_path, 0, 1))
    with monkeypatch.context() as patch:
        patch.setattr("emobench.runs.stages.evaluate.minor_versions", lambda *names: dict.fromkeys(names, "9.9"))
        newer = run(tmp_path, 1)
        assert f"seed 0 of entry {first['id']} is not pooled: it differs in more than its seed" in newer.err
        assert f"seed 1 of entry {first['id']} is not pooled: there is a newer run" in newer.err
        assert entry_of(newer)["seeds"] == [1]
        assert entry_of(run(tmp_path, 2))["seeds"] == [1, 2]
    assert sorted(row.seeds for row in Leaderboard(tmp_path).rows()) == [(0, 1), (1, 2)]


def test_runs_whose_files_are_elsewhere_are_not_pooled(run: Run, shared_runs: Path, tmp_path: Path) -> None:
    first = entry_of(run(tmp_path / "board", 0))
    shutil.copytree(shared_runs, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "examples" / first["runs"][0]["key"])
    done = run(tmp_path / "board", 1, runs=tmp_path / "runs")
    assert entry_of(done)["seeds"] == [1]
    assert f"seed 0 of entry {first['id']} is not pooled: the files of its run" in done.err
    for generated in (tmp_path / "runs" / "generate").iterdir():  # as a user may, once they are scored
        shutil.rmtree(generated)
    shutil.rmtree(tmp_path / "board")
    assert entry_of(run(tmp_path / "board", 1, runs=tmp_path / "runs"))["seeds"] == [1]
