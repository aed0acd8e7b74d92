"""Differences from a baseline agree with paired t tests; marks are only beyond noise; older code decides nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shown import board_markdown

from emobench.core.errors import UnknownNameError
from emobench.core.settings import to_plain
from emobench.leaderboard.comparable import older_code
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.run_files import entry_examples
from emobench.report.board_table import to_json

MakeEntry = Callable[..., Entry]

MLE = {"a/accuracy": [0.800, 0.803, 0.801], "b/accuracy": [0.600, 0.603, 0.599], "b/ppl": [20.0, 20.4, 20.1]}
EMO = {"a/accuracy": [0.850, 0.853, 0.850], "b/accuracy": [0.601, 0.600, 0.604], "b/ppl": [30.0, 30.2, 30.4]}


def group_of(entries: Sequence[Entry], **view: Any) -> dict[str, Any]:
    (group,) = to_json(entries, view=View(**view))["groups"]
    return group


def cells(entries: Sequence[Entry], **view: Any) -> list[list[str]]:
    """Return the cells of each line of the table."""
    lines = board_markdown(entries, view=View(**view)).replace("\\", "").replace("**", "").splitlines()
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]


def test_differences_are_paired_t_tests_with_holm_in_each_family(make_row: MakeEntry) -> None:
    stats = pytest.importorskip("scipy.stats")
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    mle, emo = make_row("mle", MLE), make_row("emo", EMO)
    group = group_of([mle, emo], baseline="mle")
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
    lines = cells([make_row("mle", MLE), make_row("emo", EMO)], baseline="mle")
    # (85.1 + 60.167 - 80.133 - 60.067) / 2 = 2.53 points, 85.1 - 80.133 = 5.0, 60.167 - 60.067 = 0.1, and in percent:
    ratio = math.prod(EMO["b/ppl"]) ** (1 / 3) / math.prod(MLE["b/ppl"]) ** (1 / 3)
    assert f"{100 * ratio - 100:+.1f}" == "+49.8"
    assert ["emo", "1", "+2.53*", "+5.0*", "+0.1", "+49.8 %*"] in lines
    assert ["mle", "2", "70.10 ± 0.17", "80.1 ± 0.2", "60.1 ± 0.2", "20.2 ± 0.2"] in lines


def test_published_means_are_subtracted(make_row: MakeEntry) -> None:
    entries = [
        make_row(name, {"a/accuracy": [accuracy]}, kind="published", seeds=[], source={"cite": "a paper, Table 3"})
        for name, accuracy in (("mle", 0.535), ("emo", 0.656))
    ]
    assert ["emo", "+12.1"] in cells(entries, baseline="mle")


def test_a_baseline_that_is_not_one_row_is_said_not_guessed(make_row: MakeEntry) -> None:
    def tailr(gamma: float) -> Entry:
        objective = {"name": "tailr", "version": "1", "params": {"gamma": gamma, "floor": 0.0}}
        return make_row("tailr", {"a/kl": [gamma, gamma + 0.01, gamma]}, objective=objective)

    entries = [tailr(0.1), tailr(0.2), make_row("\x1b[31mmle", {"a/kl": [1.0, 1.01, 1.02]})]
    group = group_of(entries, baseline="tailr")
    assert (group["baseline"], group["differences"]) == (None, {})
    text = board_markdown(entries, view=View(baseline="tailr")).replace("\\", "")
    assert "No differences: tailr means 2 objectives here (tailr(gamma=0.1, floor=0.0)" in text
    for one_row in ("tailr(gamma=0.2)", entries[1].id[:6]):
        assert group_of(entries, baseline=one_row)["baseline"] == entries[1].id
    with pytest.raises(UnknownNameError, match=r"no objective to be the baseline 'tailer'\. Known: tailr") as caught:
        to_json(entries, view=View(baseline="tailer"))
    assert "\x1b" not in str(caught.value)


def test_small_n_is_shown_without_a_verdict(make_row: MakeEntry) -> None:
    rows = []
    for name, scores in (("mle", MLE), ("emo", EMO)):
        one = {"a/accuracy": scores["a/accuracy"]}
        metrics = {"a/accuracy": {**to_plain(make_row(name, one).metrics["a/accuracy"]), "flags": ["small_n"]}}
        rows.append(make_row(name, one, metrics=metrics))
    assert ["emo", "+5.0"] in cells(rows, baseline="mle")
    assert group_of(rows)["best"] == {"a/accuracy": None}


def mine(make_row: MakeEntry, code: str | None, day: int, *, version: str = "1", **changes: Any) -> Entry:
    objective = {"name": "mine", "version": version, "params": {"nats": 4.0}, "source_sha256": code and code * 64}
    scores = changes.pop("scores", {"a/kl": [1.0, 1.01, 1.02]})
    return make_row("mine", scores, objective=objective, created=f"2026-02-{day:02d}T00:00:00", **changes)


def test_the_newest_code_counts_or_what_was_just_run(make_row: MakeEntry) -> None:
    first, again, newest = mine(make_row, "0", 1), mine(make_row, "0", 2, recipe={"name": "x"}), mine(make_row, "1", 3)
    assert older_code([newest, first, again]) == {first.id, again.id}
    assert older_code([first, mine(make_row, "0", 2, version="2")]) == {first.id}
    # A change of code that was taken back: its runs are those of the older entry.
    assert older_code([first, newest], own={first.id}) == {newest.id}


def test_rows_of_other_parameters_or_of_unknown_code_are_not_compared_by_code(make_row: MakeEntry) -> None:
    objective = {"name": "mine", "version": "1", "params": {"nats": 5.0}, "source_sha256": "2" * 64}
    assert older_code([mine(make_row, "0", 1), make_row("mine", {"a/kl": [1.0]}, objective=objective)]) == set()
    assert older_code([mine(make_row, None, 1), mine(make_row, "0", 2)]) == set()


def test_older_code_neither_prevents_nor_takes_a_star_or_a_place(make_row: MakeEntry) -> None:
    scores = {"a/kl": [1.0, 1.01, 1.02], "b/kl": [1.0, 1.01, 1.02]}
    worse = {"a/kl": [9.0, 9.02, 9.01], "b/kl": [9.0, 9.02, 9.01]}
    newest, rival = mine(make_row, "1", 2, scores=scores), make_row("mle", worse)
    for older in (scores, {"a/kl": [0.5], "b/kl": [0.5]}, {"a/kl": [0.1, 0.11, 0.12]}):
        old = mine(make_row, "0", 1, scores=older, missing={} if "b/kl" in older else {"b/kl": "no data"})
        group = group_of([old, newest, rival])
        assert group["older_code"] == [old.id]
        assert group["best"] == dict.fromkeys(("a/kl", "b/kl", "mean/kl"), newest.id)
        assert group["ranks"]["places"] == {newest.id: 1, rival.id: 2}
        assert [entry["id"] for entry in group["entries"]] == [newest.id, rival.id, old.id]
    assert set(group_of([mine(make_row, "0", 1, scores=worse), newest])["best"].values()) == {None}


def test_a_difference_of_older_code_is_shown_unmarked(make_row: MakeEntry) -> None:
    """Both codes are 8 nats below the baseline, with noise of 0.01."""
    entries = [mine(make_row, "0", 1), mine(make_row, "1", 2), make_row("mle", {"a/kl": [9.0, 9.02, 9.01]})]
    lines = [line for line in cells(entries, baseline="mle") if "8.000" in line[-1]]
    assert lines == [["mine", "-8.000*"], [f"mine [{entries[0].id[:6]}] older code", "-8.000"]]


# Places agree with other libraries' paired t tests and Holm correction, and stand only where they mean something.

# Seeds of two tasks. `emo` and `tailr` are tied; `mixce` is below both by 5 points, `mle` by 10, with noise of 0.1.
SCORES = {
    "emo": {"a/accuracy": [0.900, 0.902, 0.901, 0.899], "b/accuracy": [0.700, 0.701, 0.699, 0.702]},
    "tailr": {"a/accuracy": [0.901, 0.900, 0.900, 0.902], "b/accuracy": [0.699, 0.702, 0.701, 0.699]},
    "mixce": {"a/accuracy": [0.851, 0.850, 0.852, 0.851], "b/accuracy": [0.650, 0.651, 0.649, 0.652]},
    "mle": {"a/accuracy": [0.801, 0.800, 0.799, 0.800], "b/accuracy": [0.600, 0.602, 0.601, 0.599]},
}


DAYS = ("2026-02-01T00:00:00", "2026-02-02T00:00:00")


def group(entries: Sequence[Entry], **view: Any) -> Any:
    (found,) = to_json(entries, view=View(**view))["groups"]
    return found


def by_name(entries: Sequence[Entry], found: dict[str, Any]) -> dict[str, Any]:
    return {entry.objective.name: found[entry.id] for entry in entries if entry.id in found}


def test_places_are_those_of_paired_t_tests_with_holm(make_row: MakeEntry) -> None:
    stats = pytest.importorskip("scipy.stats")
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    entries = [make_row(name, scores) for name, scores in SCORES.items()]
    ranks = group(entries)["ranks"]
    assert (ranks["metric"], ranks["tasks"], ranks["why"]) == ("accuracy", ["a", "b"], {})

    means = {name: np.mean([scores["a/accuracy"], scores["b/accuracy"]], axis=0) for name, scores in SCORES.items()}
    pairs = list(itertools.combinations(means, 2))
    ps = [stats.ttest_rel(means[a], means[b]).pvalue for a, b in pairs]
    places = dict.fromkeys(means, 1)
    for (a, b), rejected in zip(pairs, multitest.multipletests(ps, method="holm")[0], strict=True):
        if rejected:
            places[a if means[a].mean() < means[b].mean() else b] += 1
    assert places == {"emo": 1, "tailr": 1, "mixce": 3, "mle": 4}
    assert by_name(entries, ranks["places"]) == places
    assert by_name(entries, ranks["means"]) == pytest.approx({name: mean.mean() for name, mean in means.items()})
    assert [entry["objective"]["name"] for entry in group(entries)["entries"]] == ["emo", "tailr", "mixce", "mle"]


def test_perplexities_are_averaged_on_the_log_scale_and_lower_is_better(make_row: MakeEntry) -> None:
    entries = [
        make_row("emo", {"a/ppl": [20.0, 20.2, 20.1], "b/ppl": [5.0, 5.1, 5.05]}),
        make_row("mle", {"a/ppl": [10.0, 10.1, 10.2], "b/ppl": [5.0, 5.05, 5.0]}),
    ]
    ranks = group(entries)["ranks"]
    assert by_name(entries, ranks["places"]) == {"emo": 2, "mle": 1}
    expected = sum(math.sqrt(a * b) for a, b in ((20.0, 5.0), (20.2, 5.1), (20.1, 5.05))) / 3
    assert ranks["means"][entries[0].id] == pytest.approx(expected)


def test_a_row_without_a_task_or_seeds_has_no_place_and_the_others_keep_theirs(make_row: MakeEntry) -> None:
    entries = [make_row(name, SCORES[name]) for name in ("emo", "mle")]
    entries.append(make_row("part", {"a/accuracy": [0.95, 0.96, 0.97]}, missing={"b/accuracy": "no data"}))
    entries.append(make_row("short", {"a/accuracy": [0.1, 0.2], "b/accuracy": [0.1, 0.2]}))
    ranks = group(entries)["ranks"]
    assert by_name(entries, ranks["places"]) == {"emo": 1, "mle": 2}
    assert by_name(entries, ranks["why"]) == {
        "part": "not ranked: b/accuracy is missing",
        "short": "not ranked: 2 of 3 seeds",
    }


def test_too_few_seeds_rank_nothing_and_say_so(make_row: MakeEntry) -> None:
    entries = [make_row(n, {"a/accuracy": v, "b/accuracy": v}) for n, v in (("emo", [0.9, 0.9]), ("mle", [0.1, 0.2]))]
    ranks = group(entries)["ranks"]
    assert ranks["places"] == {}
    assert ranks["why"]["all"] == "fewer than 2 objectives with all tasks and 3 seeds"
    assert by_name(entries, ranks["means"]) == pytest.approx({"emo": 0.9, "mle": 0.15})


def test_a_metric_of_few_examples_ranks_nothing(make_row: MakeEntry) -> None:
    entries = [make_row(name, SCORES[name]) for name in ("emo", "mle")]
    metrics = {k: {**vars(m), "flags": ("small_n",)} for k, m in entries[0].metrics.items()}
    flagged = [make_row("emo", SCORES["emo"], metrics=metrics), entries[1]]
    assert group(flagged)["ranks"]["why"] == {"all": "too few examples for ranks"}
    assert group(flagged)["ranks"]["places"] == {}


def test_one_task_is_ranked_by_the_metric_that_it_is_sorted_by(make_row: MakeEntry) -> None:
    entries = [
        make_row("emo", {"a/accuracy": [0.9, 0.91, 0.92], "a/ppl": [30.0, 30.5, 31.0]}),
        make_row("mle", {"a/accuracy": [0.5, 0.52, 0.51], "a/ppl": [10.0, 10.5, 10.2]}),
    ]
    assert group(entries)["ranks"] is None
    for sort, places in (("accuracy", {"emo": 1, "mle": 2}), ("a/ppl", {"emo": 2, "mle": 1})):
        found = group(entries, sort=sort)
        assert by_name(entries, found["ranks"]["places"]) == places
        assert found["ranks"]["means"] == {}
        assert [places[entry["objective"]["name"]] for entry in found["entries"]] == [1, 2]


def test_a_selection_of_tasks_is_not_averaged(make_row: MakeEntry) -> None:
    entries = [make_row(name, SCORES[name]) for name in ("emo", "mle")]
    assert group(entries, metrics=("a/*",))["ranks"] is None
    assert group(entries, metrics=("accuracy",))["ranks"]["tasks"] == ["a", "b"]


def test_a_pretrained_row_is_ranked_by_its_examples(make_entry: MakeEntry, runs: Path) -> None:
    """200 items that are right for 90, 70 and 50 % of the models' answers, with 3 seeds that flip 2 % of them."""
    rng = np.random.default_rng(0)
    level = rng.random((2, 200))

    def answers(share: float, seeds: int) -> dict[str, np.ndarray]:
        flipped = rng.random((2, seeds, 200)) < 0.02
        return {task: ((level[i] < share) ^ flipped[i]).astype(float) for i, task in enumerate("ab")}

    entries = [make_entry("emo", answers(0.9, 3)), make_entry("mle", answers(0.5, 3))]
    entries.append(make_entry("pretrained", answers(0.7, 1), seeds=(), recipe={}))
    (found,) = to_json(entries, lambda entry: entry_examples(entry, runs))["groups"]
    assert by_name(entries, found["ranks"]["places"]) == {"emo": 1, "pretrained": 2, "mle": 3}


def test_a_row_that_cannot_be_tested_costs_no_other_row_its_place(make_row: MakeEntry) -> None:
    entries = [make_row(name, SCORES[name]) for name in ("emo", "mle")]
    entries += [make_row("pretrained", {"a/accuracy": [0.8], "b/accuracy": [0.6]}, created=day) for day in DAYS]
    ranks = group(entries)["ranks"]
    assert ranks["places"] == {entries[0].id: 1, entries[1].id: 2}
    assert ranks["why"].keys() == {entry.id for entry in entries[2:]}


def test_equal_rows_share_a_place_though_there_is_no_noise(make_row: MakeEntry) -> None:
    entries = [make_row(name, SCORES["emo"]) for name in ("mle", "focal")] + [make_row("worse", SCORES["mle"])]
    assert by_name(entries, group(entries)["ranks"]["places"]) == {"mle": 1, "focal": 1, "worse": 3}
