"""A name means the newest entry that has what a command shows, and what was passed over is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.store import Leaderboard
from emobench.runs.inspect.figures import can_draw
from emobench.runs.inspect.recorded_runs import newest, newest_of
from emobench.runs.inspect.samples import has_texts

MakeEntry = Callable[..., Entry]


@pytest.fixture
def entries(entry_of: MakeEntry, tmp_path: Path) -> list[Entry]:
    """Three entries of one objective, oldest first: one with its files, one whose files are gone, one without any."""

    def of(day: int, **files: Any) -> Entry:
        runs = [{"seed": seed, "key": f"{day}-{seed}", **files} for seed in (0, 1)]
        return entry_of("emo", created=f"2026-01-0{day}T12:00:00", seeds=[0, 1], runs=runs, protocols={"lm": "paper@1"})

    def texts(name: str) -> dict[str, Any]:
        return {"samples": [{"path": f"{name}/samples.jsonl", "sha256": "0" * 64}]}

    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "samples.jsonl").write_text("")
    return [of(1, **texts("there")), of(2, **texts("gone")), of(3)]


def test_the_newest_entry_with_the_texts_is_meant(entries: list[Entry], tmp_path: Path) -> None:
    first, second, third = entries
    assert [has_texts(entry, tmp_path, (), None) for entry in entries] == [True, False, False]
    named = newest(entries, lambda entry: has_texts(entry, tmp_path, (), 1))
    assert (named.entry, named.older, named.newer) == (first, [], [third, second])
    assert f"{third.id[:6]}, {second.id[:6]}" in named.note()
    assert not has_texts(first, tmp_path, ["other"], None)
    assert not has_texts(first, tmp_path, (), 7)


def test_where_none_has_it_the_newest_is_and_says_what_it_lacks(entries: list[Entry]) -> None:
    first, second, third = entries
    named = newest(entries, lambda entry: False)
    assert (named.entry, named.older, named.newer) == (third, [second, first], [])
    assert f"{second.id[:6]}, {first.id[:6]}" in named.note()


def test_figures_are_of_an_entry_that_has_something_to_draw(entries: list[Entry], tmp_path: Path) -> None:
    board = Leaderboard(tmp_path / "board")
    for entry in entries:
        board.append(entry)
    (named,) = newest_of(["emo"], board.root, lambda entry: can_draw(entry, tmp_path))
    assert named.entry == entries[0]
    assert len(named.newer) == 2


def test_the_newest_that_is_comparable_with_the_first_is_meant(entry_of: MakeEntry, tmp_path: Path) -> None:
    def of(name: str, day: int, tokens: int) -> Entry:
        return entry_of(name, created=f"2026-01-0{day}T12:00:00", recipe={"max_tokens": tokens})

    board = Leaderboard(tmp_path / "board")
    emo, mle, other = of("emo", 1, 10), of("mle", 2, 10), of("mle", 3, 20)
    for entry in (emo, mle, other):
        board.append(entry)
    named = newest_of(["emo", "mle"], board.root)
    assert [(one.entry, one.newer, one.unlike) for one in named] == [(emo, [], []), (mle, [other], [])]
    named = newest_of(["emo", other.id], board.root)
    assert named[1].entry == other
    assert "recipe.max_tokens: 10 and 20" in named[1].note()
