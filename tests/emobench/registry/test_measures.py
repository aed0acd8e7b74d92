"""Every metric that this distribution computes or records has a title and a definition, next to its code."""

from __future__ import annotations

from pathlib import Path

from emobench.kinds.generation.built_in import BUILT_IN
from emobench.leaderboard.store import Leaderboard
from emobench.registry.measures import describe, known_measures
from emobench.tasks.lm_eval_numbers import MEASURES, LmEvalNumber

PUBLISHED = Path(__file__).parents[3] / "leaderboards" / "published"


def test_metrics_of_plugins_and_of_records_are_declared_with_their_units_and_directions() -> None:
    expected = [(name, m.unit, m.higher_is_better) for group in BUILT_IN for name, m in group.measures.items()]
    for entry in Leaderboard(PUBLISHED).entries():
        expected += [(key.split("/", 1)[1], m.unit, m.higher_is_better) for key, m in entry.metrics.items()]
    for name, unit, better in {*expected}:
        measure = describe(name)
        assert (name, measure.unit, measure.higher_is_better) == (name, unit, better)
        assert measure.definition
    assert all(measure.title and measure.definition and measure.range for measure in known_measures().values())
    assert all(LmEvalNumber("t", name, "none", 0.5).unit == measure.unit for name, measure in MEASURES.items())


def test_titles_tell_metrics_apart_and_fit_a_heading() -> None:
    """Of lm-evaluation-harness `acc` is called as our accuracy: no suite has both."""
    titles = [measure.title for name, measure in known_measures().items() if name != "acc"]
    assert len(titles) == len({*titles})
    assert max(map(len, titles)) <= 24


def test_an_unknown_metric_keeps_its_words_and_a_rival_its_name() -> None:
    assert describe("autoj_win_rate_vs_gpt-4").title == "Auto-J win rate vs gpt-4"
    unknown = describe("my_own_score")
    assert (unknown.title, unknown.definition, unknown.higher_is_better, unknown.range) == (
        "my own score",
        "",
        None,
        "",
    )
    assert describe("_").title == "_"
