"""Secondary metrics are shown where they are asked for, and cost the main ones nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from shown import board_text, printed
from statsmodels.stats.multitest import multipletests

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.stats.compare import compare
from emobench.report.board_table import to_json
from emobench.report.site.groups import board_groups
from emobench.tasks.families import SECONDARIES
from emobench.tasks.scores import SECONDARY

MAIN = ("sst2/accuracy", "trec/accuracy")
VALUES = {"mle": (0.700, 0.704, 0.701), "emo": (0.720, 0.723, 0.722), "tailr": (0.711, 0.709, 0.712)}


@pytest.fixture
def rows(make_row: Callable[..., Entry]) -> dict[str, Entry]:
    """Three objectives with an accuracy and a secondary macro-F1 on two tasks; the F1 is noisier."""
    found = {}
    for place, (name, values) in enumerate(VALUES.items()):
        noisy = [value + 0.002 * place * (-1) ** i for i, value in enumerate(values)]
        scores: dict[str, Sequence[float]] = {}
        for task in ("sst2", "trec"):
            scores |= {f"{task}/accuracy": values, f"{task}/macro_f1": noisy}
        metrics = {
            metric: replace(summary, flags=(SECONDARY,)) if metric.endswith("f1") else summary
            for metric, summary in make_row(name, scores).metrics.items()
        }
        found[name] = make_row(name, scores, metrics=to_plain(metrics))
    return found


def test_a_table_has_the_main_metrics_and_their_mean_and_others_on_request(rows: dict[str, Entry]) -> None:
    def shown(**view: Any) -> str:
        return printed(board_text(list(rows.values()), view=View(**view)), 400)

    plain, asked, both = shown(), shown(metrics=("macro_f1",)), shown(metrics=("*",))
    assert ("macro_f1" in plain, SECONDARY in plain, "mean" in plain) == (False, False, True)
    assert ("macro_f1" in asked, "accuracy" in asked) == (True, False)
    assert "accuracy" in both
    assert "macro_f1" in both
    assert "macro_f1" in shown(sort="macro_f1")


def test_secondary_metrics_are_a_family_of_their_own(rows: dict[str, Entry]) -> None:
    def of_emo(**given: Any) -> Any:
        return compare(rows["mle"], [rows["emo"]], **given)

    main = of_emo()
    assert [c.metric for c in main.contrasts] == [*MAIN, "mean/accuracy"]
    assert {(c.family, c.tests) for c in main.contrasts} == {("accuracy", 3)}
    ps = [c.p for c in main.contrasts]
    assert [c.p_holm for c in main.contrasts] == pytest.approx(multipletests(ps, method="holm")[1])
    every = of_emo(metrics=list(rows["emo"].metrics))
    assert [c for c in every.contrasts if not c.secondary] == list(main.contrasts)
    second = [c for c in every.contrasts if c.secondary]
    assert {(c.family, c.tests) for c in second} == {(SECONDARIES, 3)}
    assert [c.p_holm for c in second] == pytest.approx(multipletests([c.p for c in second], method="holm")[1])


def test_a_table_of_differences_has_the_metrics_that_are_asked_for(rows: dict[str, Entry]) -> None:
    view = View(baseline="mle", metrics=("macro_f1",))
    (group,) = to_json(list(rows.values()), view=view)["groups"]
    assert set(group["differences"][rows["emo"].id]) == {"sst2/macro_f1", "trec/macro_f1", "mean"}


def test_a_page_has_the_main_metrics_before_the_secondary_ones(rows: dict[str, Entry]) -> None:
    (group,) = board_groups(list(rows.values()), None)
    main = len(MAIN) + 1
    assert set(group.metrics[:main]) == {*MAIN, "mean/accuracy"}
    assert set(group.metrics[main:]) == {"sst2/macro_f1", "trec/macro_f1"}
