"""What computes is written by the process that computes, told by an entry in short, and joined in one file of a run."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, entry_id
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.run_files import digest
from emobench.leaderboard.store import Leaderboard
from emobench.leaderboard.verify import verify
from emobench.runs.execution.environment import (
    ENVIRONMENT,
    installed,
    join_environments,
    machine_facts,
    write_environment,
)

STUDIES = Path(__file__).parents[4] / "leaderboards" / "studies" / "smollm2"


def test_the_lock_has_every_package_and_no_path() -> None:
    found = installed()
    assert {name: found[name] for name in ("torch", "emobench")} == {n: version(n) for n in ("torch", "emobench")}
    assert len(found) > 40
    assert list(found) == sorted(found)
    assert "/" not in "".join([*found, *found.values()])


def test_the_facts_follow_the_flags() -> None:
    before = torch.get_num_threads()
    was = machine_facts("cpu")
    try:
        torch.set_num_threads(before + 1)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.set_float32_matmul_precision("high")
        now = machine_facts("cpu")
    finally:
        torch.set_num_threads(before)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
    assert {name for name in was if was[name] != now[name]} == {"threads", "deterministic", "float32 matmul"}
    assert now["threads"].startswith(f"{before + 1}, ")
    assert (was["deterministic"], now["deterministic"]) == ("off", "warns")
    assert machine_facts("cpu") == was
    assert all(isinstance(fact, str) and fact for fact in was.values())


def test_a_run_names_each_environment_once_with_its_stages(tmp_path: Path) -> None:
    folders = [tmp_path / "train" / "a", tmp_path / "score" / "b", tmp_path / "score" / "older"]
    for folder in (*folders, tmp_path / "joined", tmp_path / "none"):
        folder.mkdir(parents=True)
    for folder in folders[:2]:
        write_environment(folder, "cpu")
    join_environments(tmp_path / "joined", folders)
    (one,) = json.loads((tmp_path / "joined" / ENVIRONMENT).read_text())["environments"]
    assert one["stages"] == ["train/a", "score/b"]
    assert one["python"] == platform.python_version()
    assert one["packages"] == installed()
    join_environments(tmp_path / "none", folders[2:])
    assert not (tmp_path / "none" / ENVIRONMENT).exists()


@pytest.fixture(scope="module")
def entry(
    command: Callable[..., Any], small_model: Path, small_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Entry]:
    """A folder of runs and a board, and the entry of two trainings there."""
    folder = tmp_path_factory.mktemp("environment")
    places = ("--data-dir", small_data, "--runs", folder / "runs", "--leaderboard", folder / "board", "--offline")
    texts = ("generation.max_length=32", "generation.prefix=4", "generation.continuation=8", "mauve.seeds=[0]")
    settings = [word for one in (*texts, "recipe.max_length=32", "recipe.max_tokens=512") for word in ("--set", one)]
    given = ("--suite", "lm-quick", "--model", small_model, "--objective", "mle", "--seed", 0, "--seed", 1)
    done = command("run", *given, *settings, "--limit", 4, *places, "--quiet", "--json").ok()
    return folder, select(done.json["entries"][0]["id"], folder / "board")[0]


def test_an_entry_tells_what_computed_it(entry: tuple[Path, Entry]) -> None:
    folder, recorded = entry
    assert recorded.provenance.environment == machine_facts("cpu")
    for run in recorded.runs:
        assert run.environment in run.files()
        assert run.environment is not None
        path = folder / "runs" / run.environment.path
        assert digest(path) == run.environment.sha256
        (one,) = json.loads(path.read_text())["environments"]
        assert [stage.partition("/")[0] for stage in one["stages"]] == ["train", "score"]
        assert one["packages"]["torch"] == version("torch")
    assert verify(Leaderboard(folder / "board"), folder / "runs") == (1, [])
    (folder / "runs" / recorded.runs[0].environment.path).write_text("{}")  # type: ignore[union-attr]
    (finding,) = verify(Leaderboard(folder / "board"), folder / "runs")[1]
    assert finding.kind == "altered"


def test_older_entries_keep_their_ids() -> None:
    board = Leaderboard(STUDIES)
    entries = board.entries(superseded=True)
    assert board.problems == []
    assert len(entries) > 10
    for one in entries:
        if one.provenance.environment is None:
            (file,) = STUDIES.glob(f"*/{one.id}.json")
            recorded = json.loads(file.read_text())
            changed = {name: recorded[name] for name in ("schema", "primary")}  # migrated from schema 4 on reading
            assert entry_id({**to_plain(one), **changed}) == one.id
