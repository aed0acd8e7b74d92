"""The newest comparable group is what commands show by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.newest import newest_common, newest_first, query_of
from emobench.leaderboard.stats.summary import summarise
from emobench.leaderboard.store import Leaderboard
from emobench.tasks.scores import Score

OLD, NEW, NEWEST = "2026-01-01T00:00:00", "2026-01-02T00:00:00", "2026-01-03T00:00:00"
Made = Callable[..., Entry]


@pytest.fixture
def made(entry_of: Made) -> Made:
    def make(name: str, model: str, created: str) -> Entry:
        scores = []
        for noise in (0.0,) if name == "pretrained" else (0.0, 0.01, 0.03):
            value = 0.5 + noise + 0.01 * len(name)
            scores.append(Score(value=value, n=9, higher_is_better=True, unit="fraction", aggregate="corpus"))
        metrics = {"sst2/accuracy": to_plain(summarise(scores))}
        return entry_of(name, created=created, model={"name": model, "source": model}, metrics=metrics)

    return make


def test_a_group_is_as_new_as_its_newest_trained_entry(made: Made) -> None:
    small, large = made("mle", "small", OLD), made("mle", "large", NEW)
    later, as_is = made("emo", "small", NEWEST), made("pretrained", "large", NEWEST)
    assert newest_first([small, large]) == [[large], [small]]
    assert newest_first([small, large, later, as_is]) == [[small, later], [large, as_is]]
    assert newest_first([]) == []


def test_the_newest_group_that_has_an_entry_of_each_name(made: Made) -> None:
    mle, emo = made("mle", "small", OLD), made("emo", "small", OLD)
    other_mle, other_emo = made("mle", "large", NEW), made("emo", "large", NEW)
    alone = made("emo", "huge", NEWEST)
    emos, mles = [emo, other_emo, alone], [mle, other_mle]
    assert newest_common([emos, mles]) == ([[other_emo], [other_mle]], [[emo, mle]])
    assert newest_common([[emo], mles]) == ([[emo], [mle]], [])
    for choices in ([[alone], mles], [[alone], [mle]], [emos]):  # no common group, single entries, one objective
        assert newest_common(choices) == (choices, [])
    assert newest_common([[*emos, *mles]]) == ([[other_emo, other_mle]], [[emo, mle]])
    assert query_of([emo, mle], other_mle) == "model=small"
    assert query_of([emo, mle], mle) == f"{emo.id[:6]} {mle.id[:6]}"


def test_commands_show_the_newest_group_and_name_the_way_to_others(
    command: Callable[..., Any], made: Made, tmp_path: Path
) -> None:
    board = Leaderboard(tmp_path / "board")
    for model, created in (("small", OLD), ("large", NEW)):
        for name in ("emo", "mle", "tailr"):
            board.append(made(name, model, created))
    place = ("--leaderboard", board.root, "--runs", tmp_path / "runs")

    def models(*words: object) -> list[str]:
        done = command(*words, *place, "--json").ok()
        told = "1 older group is not shown" in done.err
        if words[0] == "compare":
            assert told == ("see `emobench compare model=small`" in done.err)
            assert told != ("--all" in words)
            return [one["baseline"]["title"].split(" · ")[1] for one in done.json["comparisons"]]
        return [group["model"]["name"] for group in done.json["groups"]]

    for words in (("compare", "emo", "mle"), ("compare",), ("compare", "kind=measured"), ("leaderboard", "show")):
        assert models(*words) == ["large"]
        if len(words) != 1:
            assert sorted(models(*words, "--all")) == ["large", "small"] or words[-1] == "kind=measured"
    by_itself = command("compare", *place, "--json").json["comparisons"][0]
    assert by_itself["baseline"]["title"].startswith("mle")
    assert len(by_itself["candidates"]) == 2
    site = command("leaderboard", "site", tmp_path / "pages", *place).ok()
    assert "1 older group is not shown" in site.err
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["board.html", "index.html"]
    assert "older" not in command("leaderboard", "site", tmp_path / "pages", "--all", *place).ok().err
