"""Tables, compare's headings and the site's groups say which rules differ from the protocols of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from shown import board_markdown, compared

from emobench.config import content_hash
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.site.data import BoardData
from emobench.leaderboard.stats.compare import compare

GREEDY = {"sampling.method": "greedy", "limit": 40}
TOP_P = {"sampling.top_p": 0.9, "limit": 40}
TASKS = ("a", "b")


@pytest.fixture
def decoded(make_row: Callable[..., Entry]) -> Callable[[str, Mapping[str, Any]], Entry]:
    def make(name: str, rules: Mapping[str, Any]) -> Entry:
        scores = {f"{task}/mauve": [0.5, 0.6, 0.7] for task in TASKS}
        ids = {task: f"paper@{content_hash([task, rules])[:6]}" for task in TASKS}
        return make_row(name, scores, protocols=ids, changes={task: rules for task in TASKS if rules})

    return make


def test_tables_name_the_rules_and_what_separates_them(decoded: Callable[..., Entry]) -> None:
    shown = board_markdown([decoded("mle", GREEDY), decoded("mle", TOP_P)]).replace("\\", "")
    assert ") with sampling.method=greedy, limit=40 ·" in shown
    assert ") with sampling.top_p=0.9, limit=40 ·" in shown
    assert "protocol of a, b: paper with sampling.method=greedy and paper with sampling.top_p=0.9." in shown
    assert " with " not in board_markdown([decoded("mle", {})])


def test_a_comparison_names_them_in_its_heading(decoded: Callable[..., Entry]) -> None:
    (sheet,), _ = compared([compare(decoded("mle", GREEDY), [decoded("emo", GREEDY)])])
    assert sheet.heading.endswith(" · sampling.method=greedy, limit=40")
    (sheet,), _ = compared([compare(decoded("mle", {}), [decoded("emo", {})])])
    assert "=" not in sheet.heading


def test_groups_of_a_page_are_called_by_what_they_do_not_share(decoded: Callable[..., Entry]) -> None:
    entries = [decoded("mle", rules) for rules in (GREEDY, TOP_P, {"limit": 40})]
    titles = {group["title"] for group in BoardData(entries, None).plain["groups"]}
    assert titles == {"tiny", "tiny · sampling.method=greedy", "tiny · sampling.top_p=0.9"}
