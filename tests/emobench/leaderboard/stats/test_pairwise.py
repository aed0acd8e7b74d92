"""A mark on a board says what `emobench compare` says of each pair."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.query.standings import View
from emobench.leaderboard.stats.compare import PairContrasts, SeriesReader, compare
from emobench.leaderboard.store import Leaderboard
from emobench.report import compare_table
from emobench.report.board_table import to_json
from emobench.tasks.families import PRIMARY

MakeEntry = Callable[..., Entry]


def pairs() -> PairContrasts:
    return PairContrasts(SeriesReader(None))


def best(rows: Sequence[Entry], metric: str) -> str | None:
    top, _ = pairs().best(rows, metric)
    return next((entry.objective.name for entry in rows if entry.id == top), None)


def named(make_row: MakeEntry, scores: Mapping[str, Mapping[str, Sequence[float]]], **changes: Any) -> list[Entry]:
    return [make_row(name, values, **changes) for name, values in scores.items()]


def noisy(rng: np.random.Generator, mean: float, spread: float = 0.002, seeds: int = 3) -> list[float]:
    return list(mean + spread * rng.standard_normal(seeds))


def test_a_star_is_a_better_verdict_against_every_rival(make_row: MakeEntry) -> None:
    """Over 30 boards of four objectives whose means are near each other: neither says more than the other."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(30):
        means = {name: 0.5 + 0.03 * rng.random(2) for name in ("mle", "emo", "tailr", "mixce")}
        scores = {
            name: {f"{task}/accuracy": noisy(rng, mean[i]) for i, task in enumerate("ab")}
            for name, mean in means.items()
        }
        entries = named(make_row, scores, primary="mean/accuracy")
        (group,) = to_json(entries)["groups"]
        verdicts = {
            (candidate.id, contrast.metric, baseline.id): contrast.verdict
            for candidate, baseline in itertools.permutations(entries, 2)
            for contrast in compare(baseline, [candidate]).contrasts
        }
        for metric in ("a/accuracy", "b/accuracy", "mean/accuracy"):
            ahead = [
                e.id
                for e in entries
                if all(verdicts[e.id, metric, other.id] == "better" for other in entries if other is not e)
            ]
            assert [group["best"][metric]] == (ahead or [None])
            seen.add((metric, bool(ahead)))
    assert len(seen) == 6  # with and without a star, for each


def test_an_exact_copy_on_a_merged_board_takes_no_star_away(make_row: MakeEntry, tmp_path: Path) -> None:
    """Side by side, the two are rivals of which neither is better."""

    def of(name: str, values: Sequence[float], *, second: int = 0, key: str | None = None) -> Entry:
        runs = [{"seed": seed, "key": f"{key or name}-{seed}", "examples": None} for seed in range(3)]
        scores = {f"{task}/accuracy": values for task in "ab"}
        return make_row(name, scores, runs=runs, created=f"2026-01-31T12:00:0{second}")

    mine, theirs = Leaderboard(tmp_path / "mine"), Leaderboard(tmp_path / "theirs")
    better = (0.6, 0.603, 0.604)
    mle, emo, copy = of("mle", (0.5, 0.502, 0.499)), of("emo", better), of("emo", better, second=1)
    for board, entry in ((mine, mle), (mine, emo), (theirs, mle), (theirs, copy)):
        board.append(entry)
    view = View(baseline="mle")
    before = to_json(mine.entries(), view=view)
    assert before["groups"][0]["best"] == dict.fromkeys(("a/accuracy", "b/accuracy", "mean/accuracy"), emo.id)
    assert before["groups"][0]["ranks"]["places"] == {emo.id: 1, mle.id: 2}
    shutil.copytree(theirs.root, mine.root, dirs_exist_ok=True)
    assert len(mine.entries(superseded=True)) == 3
    assert to_json(mine.entries(), view=view) == before
    (group,) = to_json([mle, emo, copy], view=view)["groups"]
    assert set(group["best"].values()) == {None}
    mine.append(of("emo", better, second=2, key="again"))  # other runs are other evidence, whatever their values
    assert len(mine.entries()) == 3


def test_a_test_that_is_one_of_a_family_marks_nothing_alone(make_row: MakeEntry) -> None:
    """p is .04 on a task, which is one of two beside their mean."""
    scores = {
        "emo": {"a/accuracy": [0.850, 0.853, 0.825], "b/accuracy": [0.600, 0.603, 0.599]},
        "mle": {"a/accuracy": [0.800, 0.803, 0.801], "b/accuracy": [0.601, 0.600, 0.604]},
    }
    entries = named(make_row, scores)
    found = pairs()(entries[0], entries[1], "a/accuracy")
    assert 0.03 < found.p < 0.05
    assert best(entries, "a/accuracy") is None
    alone = named(make_row, {name: {"a/accuracy": of["a/accuracy"]} for name, of in scores.items()})
    assert best(alone, "a/accuracy") == "emo"


def test_lower_is_better_and_a_near_rival_takes_the_mark_away(make_row: MakeEntry) -> None:
    scores = {"a": {"lm/kl": [5.0, 5.1, 5.2]}, "b": {"lm/kl": [2.0, 2.1, 2.2]}, "c": {"lm/kl": [9.0, 9.2, 9.3]}}
    noise = np.random.default_rng(1)
    rows = [make_row(n, {"lm/kl": list(np.array(of["lm/kl"]) + 0.01 * noise.random(3))}) for n, of in scores.items()]
    assert best(rows, "lm/kl") == "b"
    near = named(make_row, {"d": {"lm/kl": [2.1, 2.0, 2.2]}})
    assert best([*rows, *near], "lm/kl") is None
    assert best(rows[:1], "lm/kl") is None


def test_the_best_mean_of_perplexities_is_the_lowest_geometric_one(make_row: MakeEntry) -> None:
    noise = np.array([0.999, 1.0, 1.002])
    scores = {
        "a": {"x/ppl": list(10 * noise[::-1]), "y/ppl": list(1000 * noise[::-1])},  # geometric mean 100, arithmetic 505
        "b": {"x/ppl": list(200 * noise), "y/ppl": list(200 * noise * noise)},
    }
    rows = named(make_row, scores, primary="mean/ppl")
    assert best(rows, "mean/ppl") == "a"
    assert best(rows, "x/ppl") == "a"
    assert best(rows, "y/ppl") == "b"
    # Of seeds that differ much, each with the mean 10 over tasks: the mean over seeds is geometric, too.
    wild = {
        "c": {"x/ppl": [1.0, 100.0, 10.01], "y/ppl": [100.0, 1.001, 10.0]},
        "d": {"x/ppl": list(11 * noise), "y/ppl": list(11 * noise[::-1])},
    }
    rows = named(make_row, wild, primary="mean/ppl")
    assert best(rows, "mean/ppl") == "c"


def test_a_row_without_a_metric_is_not_beaten_and_a_reason_is_given(make_row: MakeEntry) -> None:
    noise = np.array([0.0, 0.002, 0.001])
    both = {
        "high": {"x/accuracy": list(0.9 + noise), "y/accuracy": list(0.9 + noise)},
        "mid": {"x/accuracy": list(0.5 + 2 * noise), "y/accuracy": list(0.6 + 2 * noise)},
    }
    lacking = {"missing": {"y/accuracy": "the disk was full"}}
    rows = named(make_row, both) + named(make_row, {"low": {"x/accuracy": list(0.3 - noise)}}, **lacking)
    high, mid, low = rows
    assert pairs().best(rows[:2], "y/accuracy") == (high.id, None)
    assert pairs().best(rows, "y/accuracy") == (None, None)
    assert pairs().best([low, high, mid], "y/accuracy") == (None, None)
    assert pairs()(high, mid, "z/accuracy") is None
    assert pairs()(high, low, "y/accuracy") is None
    assert pairs()(high, low, "y/accuracy") is None
    assert pairs().best(rows, "x/accuracy") == (high.id, None)
    rows += named(make_row, {"two": {"x/accuracy": [0.1, 0.2]}}, **lacking)
    top, why = pairs().best(rows, "x/accuracy")
    assert (top, (why or "")[:15]) == (None, "common seeds: 2")
    near = [low, *named(make_row, {"near": {"x/accuracy": [0.301, 0.299, 0.302]}}, **lacking)]
    assert pairs().best(near, "x/accuracy") == (None, None)  # tied, and so nothing is undetermined


@pytest.mark.parametrize("change", [{"flags": ["small_n"]}, {"higher_is_better": None}])
def test_what_decides_nothing_marks_nothing(make_row: MakeEntry, change: dict[str, Any]) -> None:
    scores = {"good": {"a/accuracy": [0.9, 0.91, 0.93]}, "bad": {"a/accuracy": [0.1, 0.12, 0.11]}}
    rows = named(make_row, scores)
    assert best(rows, "a/accuracy") == "good"
    changed = []
    for row in rows:
        summary = {**to_plain(row.metrics["a/accuracy"]), **change}
        changed.append(make_row(row.objective.name, scores[row.objective.name], metrics={"a/accuracy": summary}))
    assert best(changed, "a/accuracy") is None


@pytest.mark.parametrize(
    ("ours", "theirs", "family"),
    [
        ("mean/accuracy", "mean/accuracy", PRIMARY),
        ("mean/accuracy", None, PRIMARY),  # imported: its suite has the same endpoint
        (None, "mean/accuracy", PRIMARY),
        (None, None, "accuracy"),
        ("mean/accuracy", "a/accuracy", "accuracy"),
    ],
)
def test_two_entries_have_one_primary_endpoint_or_none(
    make_row: MakeEntry, ours: str | None, theirs: str | None, family: str
) -> None:
    rng = np.random.default_rng(0)
    scores = {f"{task}/accuracy": noisy(rng, 0.5) for task in "ab"}
    emo, mle = make_row("emo", scores, primary=ours), make_row("mle", scores, primary=theirs)
    for contrast in compare(mle, [emo]).contrasts:
        assert contrast.family == (family if contrast.metric == "mean/accuracy" else "accuracy")
    told = [line for line in compare_table.report([compare(mle, [emo])]).notes if "primary endpoint is not" in line]
    assert bool(told) == (ours == "mean/accuracy" and theirs == "a/accuracy")


def test_a_missing_task_leaves_the_primary_endpoint_without_a_test(make_row: MakeEntry) -> None:
    rng = np.random.default_rng(0)
    scores = {f"{task}/accuracy": noisy(rng, 0.5) for task in "ab"}
    mle = make_row("mle", scores, primary="mean/accuracy")
    emo = make_row(
        "emo", {"a/accuracy": noisy(rng, 0.5)}, primary="mean/accuracy", missing={"b/accuracy": "the disk was full"},
        protocols=dict(mle.protocols),
    )  # fmt: skip
    compared = compare(mle, [emo])
    assert [contrast.family for contrast in compared.contrasts] == ["accuracy"]
    assert any("mean/accuracy, is not tested" in line for line in compare_table.report([compared]).notes)
