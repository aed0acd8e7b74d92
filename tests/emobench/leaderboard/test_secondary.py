"""Secondary metrics are shown where they are asked for, and cost the main ones nothing."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from statsmodels.stats.multitest import multipletests

from emobench.config import to_plain
from emobench.leaderboard.compare import compare
from emobench.leaderboard.compare_lines import sheets
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.site.groups import Groups
from emobench.leaderboard.statistics import summarise
from emobench.leaderboard.table import render, to_json
from emobench.leaderboard.view import View
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
    Console(file=out, width=400, color_system=None).print(render(list(rows.values()), view=View(**view)))
    return out.getvalue()


def test_a_table_has_the_main_metrics_and_their_mean_and_others_on_request(rows: dict[str, Entry]) -> None:
    plain = shown(rows)
    assert "macro_f1" not in plain
    assert SECONDARY not in plain
    assert "mean" in plain
    asked = shown(rows, metrics=("macro_f1",))
    assert "macro_f1 (%) ↑" in asked
    assert "accuracy" not in asked
    assert SECONDARY not in asked
    both = shown(rows, metrics=("*",))
    assert "accuracy" in both
    assert "macro_f1" in both
    assert "Rank by mean accuracy over 2 tasks" in both
    assert "macro_f1" in shown(rows, sort="macro_f1")


def test_tests_of_main_metrics_are_adjusted_for_main_metrics_alone(rows: dict[str, Entry]) -> None:
    def compared(**given: Any) -> Any:
        return compare(rows["mle"], [rows["emo"]], **given)

    main = compared()
    assert [c.metric for c in main.contrasts] == [*MAIN, "mean/accuracy"]
    assert main.family == {rows["emo"].id: 3}
    ps = [c.p for c in main.contrasts]
    assert [c.p_holm for c in main.contrasts] == pytest.approx(multipletests(ps, method="holm")[1])
    every = compared(metrics=list(rows["emo"].metrics))
    assert [c for c in every.contrasts if not c.secondary] == list(main.contrasts)
    adjusted = multipletests([c.p for c in every.contrasts], method="holm")[1]
    for contrast, p_holm in zip(every.contrasts, adjusted, strict=True):
        if contrast.secondary:
            assert contrast.p_holm == pytest.approx(p_holm)
    assert any(c.secondary for c in every.contrasts)
    assert "adjusted for all 3 metrics of the pair (Holm), shown or not;" in " ".join(sheets([main])[1])
    assert (
        "shown or not; a secondary metric is not among the 3, and its own p is adjusted for every metric;"
        in " ".join(sheets([every])[1])
    )


def test_a_table_of_differences_says_what_it_is_adjusted_for(rows: dict[str, Entry]) -> None:
    assert "Holm over all 3 metrics and means of an objective)" in shown(rows, baseline="mle")
    asked = shown(rows, baseline="mle", metrics=("macro_f1",))
    assert "Holm over all 3 metrics and means of an objective, and secondary ones)" in asked
    (group,) = to_json(list(rows.values()), view=View(baseline="mle", metrics=("macro_f1",)))["groups"]
    assert set(group["differences"][rows["emo"].id]) == {"sst2/macro_f1", "trec/macro_f1", "mean"}


def test_one_metric_is_not_said_to_be_adjusted(rows: dict[str, Entry]) -> None:
    def of(*names: str) -> dict[str, Entry]:
        return {
            key: replace(entry, metrics={f"trec/{name}": entry.metrics[f"trec/{name}"] for name in names})
            for key, entry in rows.items()
        }

    one, two = of("accuracy"), of("accuracy", "macro_f1")
    (sheet,), legend = sheets([compare(one["mle"], [one["emo"]])])
    assert "if both were equal; verdicts are at 5 %" in " ".join(legend)
    assert [line.metric for line in sheet.lines] == ["trec/accuracy (%) ↑"]
    assert "(two-sided 5 %, one metric)" in shown(one, baseline="mle")
    found = compare(two["mle"], [two["emo"]], metrics=list(two["mle"].metrics))
    assert "the p of a secondary metric is adjusted for all metrics of the pair (Holm)" in " ".join(sheets([found])[1])
    asked = shown(two, baseline="mle", metrics=("*",))
    assert "(two-sided 5 %, Holm over the one main metric and secondary ones)" in asked


def test_a_page_has_the_main_metrics(rows: dict[str, Entry]) -> None:
    (group,) = Groups(None).of(list(rows.values()))
    assert set(group.metrics) == {*MAIN, "mean/accuracy"}
