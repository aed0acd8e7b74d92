"""Names of boards that ship, in place of a folder and in a reference to entries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.leaderboard.boards import board_folder, boards_of, own_board, split_reference
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.store import Leaderboard

SHIPPED = Path(__file__).parents[3] / "leaderboards"
EMO, MLE = "8055b2f60fd9", "1d1287c865af"


@pytest.mark.parametrize(
    ("text", "folder", "reference"),
    [
        ("published:emo-table3/llama-7b/emo", SHIPPED / "published", "emo-table3/llama-7b/emo"),
        ("studies:smollm2/emo(cost=./x)", SHIPPED / "studies/smollm2", "emo(cost=./x)"),
        ("studies:smollm2", SHIPPED / "studies/smollm2", ""),
        ("model=org/name,objective=emo", Path("mine"), "model=org/name,objective=emo"),
    ],
)
def test_a_reference_begins_with_its_board(text: str, folder: Path, reference: str) -> None:
    assert split_reference(text, "mine") == (folder, reference)
    assert boards_of([text, text], "mine") == list(dict.fromkeys([Path("mine"), folder]))


def test_a_board_that_does_not_ship_or_is_read_only() -> None:
    with pytest.raises(UnknownNameError, match="smollm2"):
        board_folder("studies:smollm3")
    for name in ("published:", "studies:smollm2"):
        assert Leaderboard(board_folder(name)).rows()
        with pytest.raises(ConfigError, match="read-only"):
            own_board(name)
    assert own_board("mine") == board_folder("mine") == Path("mine")


def test_an_entry_of_a_study_is_named_from_anywhere(tmp_path: Path) -> None:
    (entry,) = select(f"studies:smollm2/{EMO[:8]}", tmp_path / "none")
    assert entry.id == EMO
    assert len(select("studies:smollm2", tmp_path)) > 40


def test_both_ways_to_name_a_study_give_the_same(command: Callable[..., Any], tmp_path: Path) -> None:
    runs = ("--runs", tmp_path, "--metric", "mauve", "--json")
    named = command("compare", f"studies:smollm2/{EMO}", f"studies:smollm2/{MLE}", *runs).ok().json
    assert named == command("compare", EMO, MLE, "--leaderboard", "studies:smollm2", *runs).ok().json
    assert named["comparisons"][0]["contrasts"][0]["items"] is not None  # with the examples that the study ships


def test_nothing_is_recorded_on_a_board_that_ships(command: Callable[..., Any]) -> None:
    for words in (("run", "--dry-run"), ("leaderboard", "pack"), ("leaderboard", "import", "x.json")):
        command(*words, "--leaderboard", "studies:smollm2").refused("studies:smollm2")
