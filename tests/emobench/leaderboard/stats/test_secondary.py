"""Secondary metrics are shown where they are asked for, and cost the main ones nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from shown import board_text, compared
from statsmodels.stats.multitest import multipletests

from emobench.config import to_plain
from emobench.leaderboard.query.view import View
from emobench.leaderboard.render.leaderboard_table import to_json
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.site.groups import Groups
from emobench.leaderboard.stats.compare import compare
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.families import SECONDARIES
from emobench.tasks.scores import SECONDARY, Score

MAIN = ("sst2/accuracy", "trec/accuracy")
VALUES = {"mle": (0.700, 0.704, 0.701), "emo": (0.720, 0.723, 0.722), "tailr": (0.711, 0.709, 0.712)}


@pytest.fixture
def rows(entry_of: Callable[..., Entry]) -> dict[str, Entry]:
    """Three objectives with an accuracy and a secondary macro-F1 on two tasks; the F1 is noisier."""

    def summary(values: tuple[float, ...], noise: float, *flags: str) -> Any:
        made = [
            Score(
                value=v + noise * (-1) ** i,
                n=500,
                higher_is_better=True,
                unit="fraction",
                flags=flags,
                aggregate="corpus",
            )
            for i, v in enumerate(values)
        ]
        return to_plain(summarise(made))

    found = {}
    for place, (name, values) in enumerate(VALUES.items()):
        accuracy, f1 = summary(values, 0), summary(values, 0.002 * place, SECONDARY)
        found[name] = entry_of(
            name,
            metrics={
                f"{task}/{m}": s for task in ("sst2", "trec") for m, s in (("accuracy", accuracy), ("macro_f1", f1))
            },
        )
    return found


def shown(rows: dict[str, Entry], **view: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=400, color_system=None).print(board_text(list(rows.values()), view=View(**view)))
    return out.getvalue()


def test_a_table_has_the_main_metrics_and_their_mean_and_others_on_request(rows: dict[str, Entry]) -> None:
    plain = shown(rows)
    assert "macro_f1" not in plain
    assert SECONDARY not in plain
    assert "mean" in plain
    asked = shown(rows, metrics=("macro_f1",))
    assert "macro_f1 (%) ↑" in asked
    assert "accuracy" not in asked
    assert "(Holm): secondary metrics (3 tests)." in asked
    both = shown(rows, metrics=("*",))
    assert "accuracy" in both
    assert "macro_f1" in both
    assert "Rank by mean accuracy over 2 tasks" in both
    assert "macro_f1" in shown(rows, sort="macro_f1")


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
    assert "(Holm): accuracy (3 tests)." in " ".join(compared([main])[1])
    assert "(Holm): accuracy (3 tests), secondary metrics (3 tests)." in " ".join(compared([every])[1])


def test_a_table_of_differences_says_what_it_is_adjusted_for(rows: dict[str, Entry]) -> None:
    assert "(Holm): accuracy (3 tests)." in shown(rows, baseline="mle")
    asked = shown(rows, baseline="mle", metrics=("macro_f1",))
    assert "(Holm): secondary metrics (3 tests)." in asked
    (group,) = to_json(list(rows.values()), view=View(baseline="mle", metrics=("macro_f1",)))["groups"]
    assert set(group["differences"][rows["emo"].id]) == {"sst2/macro_f1", "trec/macro_f1", "mean"}


def test_one_metric_is_not_said_to_be_adjusted(rows: dict[str, Entry]) -> None:
    def of(*names: str) -> dict[str, Entry]:
        found = {}
        for key, entry in rows.items():
            kept = [f"trec/{name}" for name in names]
            families = {metric: entry.families[metric] for metric in kept}
            found[key] = replace(entry, metrics={m: entry.metrics[m] for m in kept}, families=families)
        return found

    one, two = of("accuracy"), of("accuracy", "macro_f1")
    (sheet,), legend = compared([compare(one["mle"], [one["emo"]])])
    assert "p is not adjusted: it is the only test." in legend
    assert [line.metric for line in sheet.lines] == ["trec/accuracy (%) ↑"]
    assert "p is not adjusted: it is the only test." in shown(one, baseline="mle")
    asked = shown(two, baseline="mle", metrics=("*",))
    assert "p is not adjusted: each is the only test of its family." in asked


def test_a_page_has_the_main_metrics(rows: dict[str, Entry]) -> None:
    (group,) = Groups(None).of(list(rows.values()))
    assert set(group.metrics) == {*MAIN, "mean/accuracy"}
