"""Places agree with other libraries' paired t tests and Holm correction, and stand only where they mean something."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.run_files import entry_examples
from emobench.report.board_table import to_json

MakeEntry = Callable[..., Entry]

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
