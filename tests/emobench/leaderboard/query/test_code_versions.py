"""The newest code of an objective is compared; older code is shown, and neither takes a mark nor prevents one."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from rich.console import Console
from shown import board_text

from emobench.leaderboard.query.view import View
from emobench.leaderboard.render.leaderboard_table import to_json
from emobench.leaderboard.schema.comparable import older_code
from emobench.leaderboard.schema.entry import Entry

MakeEntry = Callable[..., Entry]


def mine(make_row: MakeEntry, code: str | None, day: int, *, version: str = "1", **changes: Any) -> Entry:
    objective = {"name": "mine", "version": version, "params": {"nats": 4.0}, "source_sha256": code and code * 64}
    scores = changes.pop("scores", {"a/kl": [1.0, 1.01, 1.02]})
    return make_row("mine", scores, objective=objective, created=f"2026-02-{day:02d}T00:00:00", **changes)


def test_the_newest_code_counts(make_row: MakeEntry) -> None:
    first, again, newest = mine(make_row, "0", 1), mine(make_row, "0", 2, recipe={"name": "x"}), mine(make_row, "1", 3)
    assert older_code([newest, first, again]) == {first.id, again.id}
    assert older_code([mine(make_row, "0", 1), mine(make_row, "0", 2, version="2")]) == {mine(make_row, "0", 1).id}


def test_rows_of_other_parameters_or_of_unknown_code_are_nobodys_twin(make_row: MakeEntry) -> None:
    objective = {"name": "mine", "version": "1", "params": {"nats": 5.0}, "source_sha256": "2" * 64}
    assert older_code([mine(make_row, "0", 1), make_row("mine", {"a/kl": [1.0]}, objective=objective)]) == set()
    assert older_code([mine(make_row, None, 1), mine(make_row, "0", 2)]) == set()


def test_what_was_just_run_is_not_older(make_row: MakeEntry) -> None:
    """A change of code that was taken back: its runs are those of the older entry."""
    back, newest = mine(make_row, "0", 1), mine(make_row, "1", 2)
    assert older_code([back, newest], own={back.id}) == {newest.id}


def test_older_code_neither_prevents_nor_takes_a_star_or_a_place(make_row: MakeEntry) -> None:
    scores = {"a/kl": [1.0, 1.01, 1.02], "b/kl": [1.0, 1.01, 1.02]}
    worse = {"a/kl": [9.0, 9.02, 9.01], "b/kl": [9.0, 9.02, 9.01]}
    newest, rival = mine(make_row, "1", 2, scores=scores), make_row("mle", worse)
    for older in (scores, {"a/kl": [0.5], "b/kl": [0.5]}, {"a/kl": [0.1, 0.11, 0.12]}):
        twin = mine(make_row, "0", 1, scores=older, missing={} if "b/kl" in older else {"b/kl": "no data"})
        (group,) = to_json([twin, newest, rival])["groups"]
        assert group["older_code"] == [twin.id]
        assert group["best"] == dict.fromkeys(("a/kl", "b/kl", "mean/kl"), newest.id)
        assert group["ranks"]["places"] == {newest.id: 1, rival.id: 2}
        assert [entry["id"] for entry in group["entries"]] == [newest.id, rival.id, twin.id]
    (alone,) = to_json([mine(make_row, "0", 1, scores=worse), newest])["groups"]
    assert set(alone["best"].values()) == {None}


def test_older_code_is_dim_and_named(make_row: MakeEntry) -> None:
    twin, newest = mine(make_row, "0", 1), mine(make_row, "1", 2)
    out = io.StringIO()
    Console(file=out, width=100, color_system="standard", force_terminal=True).print(
        board_text([twin, newest], view=View())
    )
    (line,) = [line for line in out.getvalue().splitlines() if "older code" in line and "other code" not in line]
    assert line.startswith(f"\x1b[2mmine [{twin.id[:6]}] older code\x1b[0m")
    assert f"mine [{twin.id[:6]}]: the same name and parameters, other code:" in out.getvalue()


def test_a_difference_of_older_code_is_shown_unmarked(make_row: MakeEntry) -> None:
    """Both codes are 8 nats below the baseline, with noise of 0.01."""
    entries = [mine(make_row, "0", 1), mine(make_row, "1", 2), make_row("mle", {"a/kl": [9.0, 9.02, 9.01]})]
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(board_text(entries, view=View(baseline="mle")))
    lines = [line.split() for line in out.getvalue().splitlines() if "8.000" in line]
    assert lines[0] == ["mine", "-8.000*"]
    assert lines[1] == ["mine", f"[{entries[0].id[:6]}]", "older", "code", "-8.000"]
