"""What a reader types names the entries that it should."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry, new_entry
from emobench.leaderboard.query.rows import select
from emobench.leaderboard.store import Leaderboard

ONES = {"sst2": np.ones((3, 4))}


@pytest.fixture
def board(tmp_path: Path) -> Leaderboard:
    return Leaderboard(tmp_path / "board")


def objective(name: str, code: str | None = None, **params: float) -> dict[str, object]:
    return {"name": name, "version": "1", "params": params, "source_sha256": code}


def test_every_form(board: Leaderboard, make_entry: Callable[..., Entry]) -> None:
    mle = make_entry("mle", ONES)
    low, high = (make_entry(str(g), ONES, objective=objective("tailr", gamma=g, floor=0.0)) for g in (0.1, 0.2))
    large = make_entry("large", ONES, objective=objective("mle"), model={"name": "large", "source": "large"})
    for entry in (mle, low, high, large):
        board.append(entry)

    def ids(text: str) -> set[str]:
        return {entry.id for entry in select(text, board.root)}

    assert ids(mle.id) == ids(mle.id[:6]) == {mle.id}
    assert ids("mle") == ids("objective=mle") == {mle.id, large.id}
    assert ids("model=large") == ids("mle,model=large") == ids(" model = large , suite=nlu@1") == {large.id}
    assert ids("tailr") == {low.id, high.id}
    assert ids("tailr(gamma=0.2)") == ids("objective=tailr(gamma=0.2, floor=0.0),kind=measured") == {high.id}


def test_a_broken_file_is_hinted_at(board: Leaderboard, make_entry: Callable[..., Entry]) -> None:
    board.append(make_entry("mle", ONES))
    broken = board.append(make_entry("emo", ONES))
    broken.write_text(broken.read_text()[:-20])
    with pytest.raises(ConfigError, match=r"Files of the board cannot be read, see .*\.json: not the JSON of an entry"):
        select("emo", board.root)


def test_a_superseded_entry_has_still_its_id(board: Leaderboard, make_entry: Callable[..., Entry]) -> None:
    old = make_entry("mle", ONES)
    new = make_entry("mle", ONES, supersedes=old.id)
    board.append(old)
    board.append(new)
    assert [e.id for e in select("mle", board.root)] == [new.id]
    assert [e.id for e in select(old.id, board.root)] == [old.id]


def test_a_query_leaves_out_older_code(board: Leaderboard, make_entry: Callable[..., Entry]) -> None:
    entry = make_entry("emo", ONES)
    made = [
        make_entry(
            "emo", ONES, objective=objective("emo", code), provenance={**vars(entry.provenance), "created": created}
        )
        for code, created in (("a" * 64, "2026-01-01T00:00:00"), ("b" * 64, "2026-02-01T00:00:00"))
    ]
    for entry in made:
        board.append(entry)
    assert [e.id for e in select("emo", board.root)] == [made[1].id]
    assert [e.id for e in select(made[0].id, board.root)] == [made[0].id]


def test_the_papers_board(tmp_path: Path) -> None:
    (emo,) = select("published:emo-table3/llama-7b/emo", tmp_path)
    assert (emo.kind, emo.suite.name, emo.model.name) == ("published", "emo-table3", "llama-7b")
    assert {e.objective.name for e in select("published:emo-table3/llama-7b", tmp_path)} >= {"pretrained", "mle", "emo"}
    assert emo in select("published:objective=emo,model=llama-7b", tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("emoo", "no entry of the objective 'emoo'; did you mean 'emo'?"),
        ("EMO", "no entry of the objective 'EMO'; did you mean 'emo'?"),
        ("model=gtp2", "no entry of the model 'gtp2'"),
        ("sute=nlu", "no key of a query 'sute'; did you mean 'suite'?"),
        ("published:emo-table3/llama-7b/emoo", "did you mean 'emo'?"),
        ("published:emo-table33", "did you mean 'emo-table3'?"),
        ("abcdef012345", "no entry of the objective 'abcdef012345'"),
    ],
)
def test_what_nothing_is_called(text: str, told: str, board: Leaderboard, make_entry: Callable[..., Entry]) -> None:
    board.append(make_entry("emo", ONES))
    with pytest.raises(UnknownNameError) as error:
        select(text, board.root)
    assert told in str(error.value)


def test_an_empty_board_says_how_to_fill_it(board: Leaderboard) -> None:
    with pytest.raises(DataError, match="There is no leaderboard"):
        select("emo", board.root)
    board.root.mkdir()
    with pytest.raises(ConfigError, match=r"has no entry yet: `emobench run --leaderboard .*` records a first"):
        select("emo", board.root)


def test_digits_that_begin_two_ids_are_too_few(board: Leaderboard, make_entry: Callable[..., Entry]) -> None:
    first = make_entry("emo", ONES)
    made = {first.id[:4]: first}
    for number in range(5000):  # until two ids begin alike: about 300 entries
        entry = new_entry({**_fields(first), "source": {"command": str(number)}})
        if entry.id[:4] in made:
            board.append(entry)
            board.append(made[entry.id[:4]])
            break
        made[entry.id[:4]] = entry
    with pytest.raises(ConfigError, match=r"begins 2 ids .* give more digits"):
        select(entry.id[:4], board.root)
    assert select(entry.id, board.root) == [entry]


def _fields(entry: Entry) -> dict[str, object]:
    return {key: value for key, value in to_plain(entry).items() if key not in ("schema", "id")}
