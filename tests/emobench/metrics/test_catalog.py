"""Every metric that this distribution computes has a title and a definition."""

from __future__ import annotations

from pathlib import Path

from emobench.kinds.generation.built_in import BUILT_IN
from emobench.kinds.icl.answers import GROUP_ACCURACY, METRICS
from emobench.kinds.oracle.distances import DISTANCES
from emobench.leaderboard.store import Leaderboard
from emobench.metrics.catalog import CATALOG, describe
from emobench.tasks.lm_eval_numbers import LmEvalNumber

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


def test_units_and_directions_are_those_of_the_metrics_and_of_the_records() -> None:
    measured = [(name, m.unit, m.higher_is_better) for group in BUILT_IN for name, m in group.measures.items()]
    entries = Leaderboard(PUBLISHED).entries()
    recorded = [(key.split("/", 1)[1], m.unit, m.higher_is_better) for e in entries for key, m in e.metrics.items()]
    known = [(name, describe(name)) for name, _, _ in measured + recorded]
    assert [(name, info.unit, info.higher_is_better) for name, info in known] == measured + recorded
    theirs = [info for info in CATALOG.values() if info.source == "lm-evaluation-harness"]
    assert [info.unit for info in theirs] == [LmEvalNumber("t", info.name, "none", 0.5).unit for info in theirs]
    assert all(info.range for info in CATALOG.values())
    assert (describe("my_own_score").higher_is_better, describe("my_own_score").range) == (None, "")
