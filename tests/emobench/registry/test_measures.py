"""Every metric that this distribution computes or records has a title and a definition, next to its code."""

from __future__ import annotations

import re
from pathlib import Path

from emobench.kinds.generation.built_in import BUILT_IN
from emobench.leaderboard.store import Leaderboard
from emobench.registry import load_kind
from emobench.registry.measures import describe, known_measures
from emobench.tasks.lm_eval_numbers import MEASURES, LmEvalNumber

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "leaderboards" / "published"
BETTER = {True: "higher", False: "lower", None: "none"}


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


def test_the_guide_lists_the_measures_with_their_directions() -> None:
    """A row is | `name`, `name` | what it measures | better |, without the last column for secondary ones."""
    listed: dict[str, str] = {}
    for line in (ROOT / "docs" / "guides" / "metrics.md").read_text().splitlines():
        names, *cells = line.strip("| ").split(" | ")
        for name in re.findall(r"`(\w+)`", names):
            if name in known_measures():
                listed[name] = cells[-1] if len(cells) > 1 else "secondary"
    measured = {name for group in BUILT_IN for name in group.measures}
    assert listed.keys() >= measured | load_kind("icl").measures.keys()
    for name, better in listed.items():
        measure = known_measures()[name]
        assert better == ("secondary" if measure.secondary else BETTER[measure.higher_is_better]), name
