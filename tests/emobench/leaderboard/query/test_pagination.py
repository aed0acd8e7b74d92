"""A page holds the newest groups whole, says how many entries it leaves out, and reads no other file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.rows import Page, read_page
from emobench.leaderboard.store import Leaderboard, Row

MakeEntry = Callable[..., Entry]


class Counting(Leaderboard):
    """A board that remembers what was read from it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.seen: list[str] = []

    def read(self, row: Row) -> Entry:
        self.seen.append(row.id)
        return super().read(row)


@pytest.fixture
def board(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


def filled(board: Leaderboard, entries: Sequence[Entry]) -> list[Row]:
    for entry in entries:
        board.append(entry)
    return board.rows()


def ids(entries: Sequence[Entry]) -> set[str]:
    return {entry.id for entry in entries}


def group(make_row: MakeEntry, epochs: int, *names: str, day: int, **changes: Any) -> list[Entry]:
    recipe = {"name": "lm", "epochs": epochs}
    return [
        make_row(
            name, {"a/kl": [float(place)]}, recipe=recipe, created=f"2026-02-{day + place:02d}T00:00:00", **changes
        )
        for place, name in enumerate(names)
    ]


def read(board: Leaderboard, entries: Sequence[Entry], limit: int, around: Sequence[str] = ()) -> Page:
    return read_page(board, filled(board, entries), limit, around, older=True)


def test_the_newest_groups_are_read_whole_until_the_limit(board: Counting, make_row: MakeEntry) -> None:
    old = group(make_row, 1, "mle", "emo", day=1)
    new = group(make_row, 3, "mle", "emo", "tailr", day=20)
    middle = group(make_row, 2, "mle", "emo", day=10)
    page = read(board, [*old, *new, *middle], 6)
    assert ids(page.entries) == ids([*new, *middle])
    assert (page.left_out, page.cut) == (2, 0)
    assert sorted(board.seen) == sorted(ids([*new, *middle]))
    assert page.more.startswith("1 older group is not shown: narrow with --model")
    page = read(board, [], 4)
    assert (ids(page.entries), page.left_out) == (ids(new), 4)
    page = read(board, [], 100)
    assert (ids(page.entries), page.left_out, page.more) == (ids([*old, *middle, *new]), 0, "")


def test_a_group_is_cut_only_where_it_is_alone_and_says_so(board: Counting, make_row: MakeEntry) -> None:
    large = group(make_row, 1, "mle", "emo", "tailr", "mixce", day=1)
    plain = make_row("pretrained", {"a/kl": [1.0]}, created="2026-01-01T00:00:00")
    page = read(board, [*large, plain, *group(make_row, 2, "mle", day=1, model={"name": "b", "source": "b"})], 3)
    assert ids(page.entries) == ids([plain, *large[-2:]])
    assert (page.left_out, page.cut) == (3, 2)
    assert "not part of its marks and ranks: 2." in page.more


def test_a_pretrained_row_comes_with_each_group_that_it_belongs_to(board: Counting, make_row: MakeEntry) -> None:
    plain = make_row("pretrained", {"a/kl": [1.0]}, created="2026-02-28T00:00:00")
    other = make_row("pretrained", {"a/kl": [1.0]}, protocols={"a": "other@1"}, created="2026-02-01T00:00:00")
    old, new = group(make_row, 1, "mle", day=2), group(make_row, 2, "mle", day=4)
    assert ids(read(board, [plain, other, *old, *new], 2).entries) == ids([plain, *new])
    assert ids(read(board, [], 3).entries) == ids([plain, *new, *old])
    assert ids(read(board, [], 4).entries) == ids([plain, *new, *old, other])


def test_only_the_groups_around_given_entries_are_read(board: Counting, make_row: MakeEntry) -> None:
    old, new = group(make_row, 1, "mle", "emo", "tailr", day=1), group(make_row, 2, "mle", "emo", day=10)
    page = read(board, [*old, *new], 10, around=[old[0].id])
    assert (ids(page.entries), page.left_out) == (ids(old), 0)
    page = read(board, [], 2, around=[old[0].id])
    assert ids(page.entries) == ids([old[0], old[2]])
    assert (page.left_out, page.cut) == (1, 1)
    plain = make_row("pretrained", {"a/kl": [1.0]})
    assert ids(read(board, [plain], 10, around=[plain.id]).entries) == ids([*old, *new, plain])


def test_an_entry_that_went_away_since_is_named(board: Counting, make_row: MakeEntry) -> None:
    entries = group(make_row, 1, "mle", "emo", day=1)
    rows = filled(board, entries)
    board.path(entries[0]).unlink()
    page = read_page(board, rows, 10, older=True)
    assert ids(page.entries) == ids(entries[1:])
    assert [str(board.path(entries[0])) in problem for problem in page.problems] == [True]
