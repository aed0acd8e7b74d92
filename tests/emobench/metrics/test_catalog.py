"""Every metric that this distribution computes has a title and a definition."""

from __future__ import annotations

from pathlib import Path

from emobench.kinds.generation.built_in import BUILT_IN
from emobench.kinds.icl.answers import GROUP_ACCURACY, METRICS
from emobench.kinds.oracle.distances import DISTANCES
from emobench.leaderboard.store.board import Leaderboard
from emobench.metrics.catalog import CATALOG, describe

PUBLISHED = Path(__file__).parents[3] / "leaderboards" / "published"


def test_every_built_in_metric_is_defined() -> None:
    built_in = {name for group in BUILT_IN for name in group.measures}
    recorded = {key.split("/", 1)[1] for entry in Leaderboard(PUBLISHED).entries() for key in entry.metrics}
    names = built_in | {*METRICS, GROUP_ACCURACY, *DISTANCES, "ppl_test"} | recorded
    assert {name for name in names if not describe(name).definition} == set()


def test_titles_tell_metrics_of_one_kind_apart() -> None:
    """Of lm-evaluation-harness `acc` is called as our accuracy: no suite has both."""
    titles = [info.title for name, info in CATALOG.items() if name != "acc"]
    assert len(titles) == len({*titles})
    assert all(len(title) <= 24 for title in titles)


def test_an_unknown_metric_keeps_its_words_and_a_rival_its_name() -> None:
    assert describe("autoj_win_rate_vs_gpt-4").title == "Auto-J win rate vs gpt-4"
    assert describe("my_own_score").title == "my own score"
    assert describe("autoj_win_rate_vs_gpt-4").title == "Auto-J win rate vs gpt-4"
    assert describe("my_own_score").definition == ""
    assert describe("_").title == "_"
