"""The mean over tasks that ask about the same items has their noise, and not less."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.series import Series, TaskItems, joined_tasks
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score, by_unit

ITEMS, SEEDS = 40, 3


def digest(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()[:12]


def row(values_SI: np.ndarray, names: list[str]) -> Series:
    examples = {s: {name: (float(v), 1.0) for name, v in zip(names, of, strict=True)} for s, of in enumerate(values_SI)}
    values: dict[int | None, float] = {seed: float(of.mean()) for seed, of in enumerate(values_SI)}
    return Series(values=values, examples=examples, log_scale=False, of_examples=True)


def found(tasks: list[tuple[Series, Series]]) -> Difference:
    difference = compare_rows([left for left, _ in tasks], [right for _, right in tasks])
    assert isinstance(difference, Difference), difference
    return difference


@pytest.fixture
def sides() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    item_I = draw.normal(0.1, 1, ITEMS)
    return item_I + draw.normal(0, 0.1, (SEEDS, ITEMS)), draw.normal(0, 0.1, (SEEDS, ITEMS))


@pytest.mark.parametrize("name", ["{digest}-{i}", "{i}-{digest}", "text {digest}"])
def test_a_task_that_stands_there_five_times_is_one(name: str, sides: tuple[np.ndarray, np.ndarray]) -> None:
    names = [name.format(i=i, digest=digest(i)) for i in range(ITEMS)]
    task = row(sides[0], names), row(sides[1], names)
    alone, together = found([task]), found([task] * 5)
    assert together.items == ITEMS
    assert replace(together, p=0.0, effect=0.0, ci95=None, detectable=None, detectable_ci95=None) == replace(
        alone, p=0.0, effect=0.0, ci95=None, detectable=None, detectable_ci95=None
    )
    assert together.p == pytest.approx(alone.p)
    assert together.ci95 == pytest.approx(alone.ci95)


def test_rows_of_two_corpora_are_other_items(sides: tuple[np.ndarray, np.ndarray]) -> None:
    same = [f"row {i}" for i in range(ITEMS)]
    other = [f"{digest(i + ITEMS)}-{i}" for i in range(ITEMS)]
    tasks = [(row(left, same), row(right, same)) for left, right in (sides, (sides[0] * 2, sides[1]))]
    own = [tasks[0], (row(sides[0] * 2, other), row(sides[1], other))]
    assert found(tasks).p == pytest.approx(found(own).p)
    assert found(tasks).ci95 == pytest.approx(found(own).ci95)
    assert found(tasks).items == found(own).items == 2 * ITEMS


def test_two_corpora_with_one_test_text_share_its_documents(sides: tuple[np.ndarray, np.ndarray]) -> None:
    """As WikiText-2 and WikiText-103: a document's name is its first row, and its prompts have digests."""
    units = {f"{digest(i)}-{i}": f"row {i // 2}" for i in range(ITEMS)}

    def of_documents(values_SI: np.ndarray) -> Series:
        plain = row(values_SI, list(units))
        return replace(plain, examples={seed: by_unit(of, units) for seed, of in (plain.examples or {}).items()})

    task = of_documents(sides[0]), of_documents(sides[1])
    alone, together = found([task]), found([task] * 2)
    assert together.items == alone.items == ITEMS / 2
    assert together.p == pytest.approx(alone.p)


@pytest.mark.parametrize(("data", "items"), [(("sha256:1", "sha256:1"), ITEMS), (("sha256:1", "sha256:2"), 2 * ITEMS)])
def test_rows_of_one_text_are_the_same_under_two_names(
    data: tuple[str, str], items: int, entry_of: Callable[..., Entry], sides: tuple[np.ndarray, np.ndarray]
) -> None:
    """As perplexities on WikiText-2 and WikiText-103, whose documents are known by their rows alone."""
    rows = []
    for name, values_SI in zip(("emo", "mle"), sides, strict=True):
        of_seeds = [{f"row {i}": (float(v), 1.0) for i, v in enumerate(of)} for of in values_SI]
        scores = [
            Score(value=float(of.mean()), n=ITEMS, higher_is_better=True, unit="nats", examples=examples)
            for of, examples in zip(values_SI, of_seeds, strict=True)
        ]
        metrics = {f"{task}/x": to_plain(summarise(scores)) for task in ("a", "b")}
        named = {f"{task}.test": f"{digest} (hub: {task})" for task, digest in zip("ab", data, strict=True)}
        given = to_plain(entry_of(name).provenance) | {"data": named}
        entry = entry_of(name, metrics=metrics, seeds=[0, 1, 2], provenance=given)
        runs = [dict.fromkeys(metrics, examples) for examples in of_seeds]
        rows.append([Series.of_entry(entry, metric, runs) for metric in metrics])
    tasks = [(left, right) for left, right in zip(*rows, strict=True) if left is not None and right is not None]
    assert found(tasks).items == items
    if items == ITEMS:
        assert found(tasks).p == pytest.approx(found(tasks[:1]).p)


def test_the_mean_and_its_variance_are_those_of_all_items_of_the_tasks() -> None:
    """One task has half of the items of another one, and a third has its own."""
    draw = np.random.default_rng(1)
    whole, half, own = (draw.normal(size=(2, SEEDS, count)) for count in (40, 20, 30))
    names = [tuple(f"{digest(i)}-{i}" for i in span) for span in (range(40), range(0, 40, 2), range(100, 130))]
    tasks = [TaskItems(n, (v[0], v[1]), float(len(n))) for n, v in zip(names, (whole, half, own), strict=True)]
    joined = joined_tasks(tasks)
    assert [len(one.names) for one in joined] == [40, 30]
    # Seed by seed, the mean over the two that are left is that over the three tasks.
    for side in (0, 1):
        of_tasks = np.mean([v[side].mean(1) for v in (whole, half, own)], axis=0)
        assert np.mean([one.values[side].mean(1) for one in joined], axis=0) == pytest.approx(of_tasks)
    # What an item adds to that mean: its share of each task's mean, a third each.
    deviation_SI = (whole[0] - whole[0].mean(1, keepdims=True)) / 40 / 3
    deviation_SI[:, ::2] += (half[0] - half[0].mean(1, keepdims=True)) / 20 / 3
    left_SI = joined[0].values[0][:, [joined[0].names.index(name) for name in names[0]]]
    assert (left_SI - left_SI.mean(1, keepdims=True)) / 40 / 2 == pytest.approx(deviation_SI)


def test_one_shared_item_does_not_hide_opposite_skewnesses() -> None:
    """Of tasks of 10 and 60 items with one in common, 9 % of true nulls were rejected."""
    draw = np.random.default_rng(0)
    rejected = 0
    for _ in range(600):
        few_I, many_I = (np.exp(1.5 * draw.normal(size=n)) - math.exp(1.125) for n in (10, 60))
        tasks = []
        for values_I, first in ((few_I, 0), (-many_I, 9)):
            values_SI = values_I + 0.1 * draw.normal(size=(3, len(values_I)))
            names = [f"text {digest(first + i)}" for i in range(len(values_I))]
            tasks.append((row(values_SI, names), row(np.zeros_like(values_SI), names)))
        difference = compare_rows([left for left, _ in tasks], [right for _, right in tasks])
        rejected += isinstance(difference, Difference) and difference.p <= 0.05
    assert rejected < 600 * 0.05


def test_tasks_are_joined_through_a_third_one() -> None:
    names = [["a", "b"], ["c", "d"], ["b", "c"], ["e", "f"]]
    values = np.zeros((SEEDS, 2))
    tasks = [TaskItems(tuple(f"{digest(n)}-0" for n in of), (values, values), 2.0) for of in names]
    assert sorted(len(one.names) for one in joined_tasks(tasks)) == [2, 4]
