"""Differences from a baseline agree with subtraction and paired t tests, and are marked only beyond noise."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from shown import board_markdown, board_text

from emobench.config import to_plain
from emobench.errors import UnknownNameError
from emobench.leaderboard.query.view import View
from emobench.leaderboard.render.leaderboard_table import to_json
from emobench.leaderboard.schema.entry import Entry

MakeEntry = Callable[..., Entry]

MLE = {"a/accuracy": [0.800, 0.803, 0.801], "b/accuracy": [0.600, 0.603, 0.599], "b/ppl": [20.0, 20.4, 20.1]}
EMO = {"a/accuracy": [0.850, 0.853, 0.850], "b/accuracy": [0.601, 0.600, 0.604], "b/ppl": [30.0, 30.2, 30.4]}


def shown(entries: Sequence[Entry], **view: Any) -> list[list[str]]:
    """Return the words of each line at 100 columns."""
    out = io.StringIO()
    Console(file=out, width=100, color_system=None).print(board_text(entries, view=View(**view)))
    return [line.split() for line in out.getvalue().splitlines()]


def test_differences_are_paired_t_tests_with_holm_in_each_family(make_row: MakeEntry) -> None:
    stats = pytest.importorskip("scipy.stats")
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    mle, emo = make_row("mle", MLE), make_row("emo", EMO)
    (group,) = to_json([mle, emo], view=View(baseline="mle"))["groups"]
    assert group["baseline"] == mle.id
    assert group["differences"].keys() == {emo.id}
    found = group["differences"][emo.id]

    mean = {n: np.mean([s["a/accuracy"], s["b/accuracy"]], axis=0) for n, s in (("emo", EMO), ("mle", MLE))}
    sides = {metric: (EMO[metric], MLE[metric]) for metric in ("a/accuracy", "b/accuracy")}
    sides |= {"b/ppl": (np.log(EMO["b/ppl"]), np.log(MLE["b/ppl"])), "mean": (mean["emo"], mean["mle"])}
    tests = {metric: stats.ttest_rel(*side) for metric, side in sides.items()}
    accuracies = [test.pvalue for metric, test in tests.items() if metric != "b/ppl"]
    adjusted = [*multitest.multipletests(accuracies, method="holm")[1]]
    adjusted.insert(2, tests["b/ppl"].pvalue)  # the one metric that a single task has
    assert found.keys() == tests.keys()
    for (metric, test), p_holm in zip(tests.items(), adjusted, strict=True):
        delta, interval = found[metric], test.confidence_interval()
        assert delta["effect"] == pytest.approx(np.mean(sides[metric][0]) - np.mean(sides[metric][1]))
        assert delta["ci95"] == pytest.approx([interval.low, interval.high])
        assert (delta["p"], delta["p_holm"]) == pytest.approx((test.pvalue, p_holm))
        assert (delta["verdict"] == "tied") is bool(p_holm > 0.05)
        assert delta["log_scale"] is (metric == "b/ppl")
    verdicts = {metric: delta["verdict"] for metric, delta in found.items()}
    assert verdicts == {"a/accuracy": "better", "mean": "better", "b/accuracy": "tied", "b/ppl": "worse"}


def test_the_table_shows_points_and_percent_with_a_mark_beyond_noise(make_row: MakeEntry) -> None:
    entries = [make_row("mle", MLE), make_row("emo", EMO)]
    lines = shown(entries, baseline="mle")
    # (85.1 + 60.167 - 80.133 - 60.067) / 2 = 2.53 points, 85.1 - 80.133 = 5.0, 60.167 - 60.067 = 0.1, and in percent:
    ratio = math.prod(EMO["b/ppl"]) ** (1 / 3) / math.prod(MLE["b/ppl"]) ** (1 / 3)
    assert f"{100 * ratio - 100:+.1f}" == "+49.8"
    (row,) = [line for line in lines if line[:1] == ["emo"]]
    assert " ".join(row) == "emo 1 +2.53* +5.0* +0.1 +49.8 %*"
    (base,) = [line for line in lines if line[:1] == ["mle"]]
    assert " ".join(base) == "mle 2 70.10 ± 0.17 80.1 ± 0.2 60.1 ± 0.2 20.2 ± 0.2"
    assert "| emo | 1 | **+2.53\\*** |" in board_markdown(entries, view=View(baseline="mle"))


def test_intervals_stand_beside_differences(make_row: MakeEntry) -> None:
    stats = pytest.importorskip("scipy.stats")
    entries = [make_row("mle", {"a/accuracy": MLE["a/accuracy"]}), make_row("emo", {"a/accuracy": EMO["a/accuracy"]})]
    low, high = stats.ttest_rel(EMO["a/accuracy"], MLE["a/accuracy"]).confidence_interval()
    (row,) = [line for line in shown(entries, baseline="mle", intervals=True) if line[:1] == ["emo"]]
    assert " ".join(row) == f"emo +5.0 [{100 * low:+.1f}, {100 * high:+.1f}]*"


def test_what_is_shown_changes_no_verdict(make_row: MakeEntry) -> None:
    """`a/accuracy` alone has p = 0.04: beyond noise, were it not one of three accuracies."""
    stats = pytest.importorskip("scipy.stats")
    close = {**EMO, "a/accuracy": [0.850, 0.853, 0.825]}
    assert 0.03 < stats.ttest_rel(close["a/accuracy"], MLE["a/accuracy"]).pvalue < 0.05
    entries = [make_row("mle", MLE), make_row("emo", close)]

    def found(*metrics: str) -> Any:
        (group,) = to_json(entries, view=View(baseline="mle", metrics=metrics))["groups"]
        return group["differences"][entries[1].id]

    whole, one = found(), found("a/accuracy")
    assert (len(whole), list(one)) == (4, ["a/accuracy"])
    assert one["a/accuracy"] == whole["a/accuracy"]
    assert one["a/accuracy"]["verdict"] == "tied"


def test_below_three_seeds_differences_stand_unmarked(make_row: MakeEntry) -> None:
    entries = [make_row(n, {"a/kl": v}) for n, v in (("mle", [1.0, 1.1]), ("emo", [9.0, 9.1]))]
    (group,) = to_json(entries, view=View(baseline="mle"))["groups"]
    delta = group["differences"][entries[1].id]["a/kl"]
    assert delta["effect"] == pytest.approx(8.0)
    assert delta["verdict"] == "undetermined"
    assert [delta[key] for key in ("p", "p_holm", "ci95")] == [None] * 3
    assert ["emo", "+8.000"] in shown(entries, baseline="mle")


def test_published_means_are_subtracted(make_row: MakeEntry) -> None:
    def published(name: str, accuracy: float) -> Entry:
        source = {"cite": "a paper, Table 3"}
        return make_row(name, {"a/accuracy": [accuracy]}, kind="published", seeds=[], source=source)

    entries = [published("mle", 0.535), published("emo", 0.656)]
    assert ["emo", "+12.1"] in shown(entries, baseline="mle")


def test_a_baseline_that_is_not_one_row_is_said_not_guessed(make_row: MakeEntry) -> None:
    def tailr(gamma: float) -> Entry:
        objective = {"name": "tailr", "version": "1", "params": {"gamma": gamma, "floor": 0.0}}
        return make_row("tailr", {"a/kl": [gamma, gamma + 0.01, gamma]}, objective=objective)

    entries = [tailr(0.1), tailr(0.2), make_row("mle", {"a/kl": [1.0, 1.01, 1.02]})]
    (group,) = to_json(entries, view=View(baseline="tailr"))["groups"]
    assert (group["baseline"], group["differences"]) == (None, {})
    text = " ".join(word for line in shown(entries, baseline="tailr") for word in line)
    assert "No differences: tailr means 2 objectives here (tailr(gamma=0.1, floor=0.0)" in text
    for one_row in ("tailr(gamma=0.2)", entries[1].id[:6]):
        (group,) = to_json(entries, view=View(baseline=one_row))["groups"]
        assert group["baseline"] == entries[1].id
    with pytest.raises(UnknownNameError, match="no objective to be the baseline 'mlee'; did you mean 'mle'"):
        to_json(entries, view=View(baseline="mlee"))


def test_a_hostile_name_reaches_no_terminal(make_row: MakeEntry) -> None:
    hostile = "\x1b[31mmle"
    entries = [make_row(hostile, MLE), make_row("emo", EMO)]
    with pytest.raises(UnknownNameError) as caught:
        to_json(entries, view=View(baseline="mle"))
    assert "\x1b" not in str(caught.value)
    words = " ".join(word for line in shown(entries, baseline=hostile) for word in line)
    assert "\x1b" not in words
    assert "Differences from �[31mmle" in words


def test_a_group_without_the_baseline_keeps_its_numbers(make_row: MakeEntry) -> None:
    entries = [
        make_row("mle", {"a/kl": [1.0]}),
        make_row("emo", {"a/kl": [2.0]}, model={"name": "big", "source": "big"}),
    ]
    text = " ".join(word for line in shown(entries, baseline="mle") for word in line)
    assert "emo 2.000" in text
    assert "No differences: no objective here is mle." in text


def test_equal_rows_have_no_difference_and_no_test(make_row: MakeEntry) -> None:
    (group,) = to_json([make_row(n, MLE) for n in ("mle", "emo")], view=View(baseline="mle"))["groups"]
    (differences,) = group["differences"].values()
    assert {(c["effect"], c["p"], c["verdict"]) for c in differences.values()} == {(0.0, None, "tied")}


def test_small_n_alone_is_tested_without_a_verdict(make_row: MakeEntry) -> None:
    rows = []
    for name, scores in (("mle", MLE), ("emo", EMO)):
        plain = make_row(name, {"a/accuracy": scores["a/accuracy"]}).metrics["a/accuracy"]
        metrics = {"a/accuracy": {**to_plain(plain), "flags": ["small_n", "fewer_prompts", "made_of_moons"]}}
        rows.append(make_row(name, {"a/accuracy": scores["a/accuracy"]}, metrics=metrics))
    said = " ".join(word for line in shown(rows, baseline="mle") for word in line)
    assert "No verdict: a/accuracy (small n: too few examples for a verdict)." in said
    assert "+5.0" in said
    assert "+5.0*" not in said
    plain = " ".join(word for line in shown(rows) for word in line)
    assert "No verdict: a/accuracy (too few examples)." in plain
    assert "small n (50): shown, not ranked" in plain
    assert "fewer prompts (50) than the limit asked for: no more texts are long enough" in plain
    assert "made of moons" in plain
    assert "better than every other" not in plain
