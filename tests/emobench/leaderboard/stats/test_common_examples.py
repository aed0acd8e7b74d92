"""Where a run lacks an example, everything is tested as if no run had it; where it lacks many, nothing is."""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_scores import score, series, within_seed

from emobench.core.errors import MetricError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import Contrast, compare, compare_models
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.random_effects import Uncertainty
from emobench.leaderboard.stats.series import (
    Common,
    Series,
    TaskItems,
    effective,
    is_log,
    joined_tasks,
    linearise,
    mean,
    weighted_mean,
)
from emobench.leaderboard.stats.summary import summarise
from emobench.report import compare_table
from emobench.tasks.scores import Examples, Score, by_unit

UNITS = {str(i): f"document {i // 3}" for i in range(60)}
"""Of three examples each."""


KINDS: dict[str, dict[str, Any]] = {
    "mean": {},
    "perplexity": {"unit": "perplexity"},
    "units": {"units": UNITS},
    "jackknife": {"aggregate": "jackknife", "shift": 0.3},
}


def rows(
    lacking: Sequence[Sequence[Collection[int]]], kind: str, seeds: Sequence[Sequence[int]], items: int = 60
) -> list[list[Score]]:
    """Return the scores of two rows; `lacking` holds what each seed of each row lacks. Calls differ in nothing else."""
    rng = np.random.default_rng(3)
    item_I, weight_I = rng.normal(2, 0.3, items), np.ones(items)
    if kind == "perplexity":
        weight_I = rng.integers(1, 30, items).astype(float)
    found: list[list[Score]] = []
    for side, of_seeds in enumerate(seeds):
        values = [item_I + 0.05 * side + rng.normal(0, 0.03) + rng.normal(0, 0.1, items) for _ in of_seeds]
        told = zip(values, lacking[side], strict=True)
        found.append([score(value_I, weight_I, without, **KINDS[kind]) for value_I, without in told])
    return found


NONE: tuple[int, ...] = ()
LACKING: dict[str, list[list[tuple[int, ...]]]] = {
    "one run": [[(7,), NONE, NONE], [NONE] * 3],
    "each run another": [[(7,), (8,), (9,)], [(10,), (7,), NONE]],
    "a whole side": [[NONE] * 3, [(0, 59)] * 3],
}
SEEDS = {"paired": [[0, 1, 2]] * 2, "unpaired": [[0, 1, 2], [5, 6, 7]]}


@pytest.mark.parametrize("pairing", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", LACKING)
def test_a_missing_example_is_as_one_that_no_run_has(what: str, kind: str, pairing: str) -> None:
    lacking, seeds = LACKING[what], SEEDS[pairing]
    gone = sorted({i for side in lacking for run in side for i in run})
    ours, theirs = (series(row, of) for row, of in zip(rows(lacking, kind, seeds), seeds, strict=True))
    found = compare_rows([ours], [theirs])
    assert (found.common_examples, found.all_examples) == (60 - len(gone), 60)

    without = rows([[gone] * 3, [gone] * 3], kind, seeds)
    if kind == "jackknife":  # the score of fewer texts is not known: it moves as the mean of its pseudo-values
        scored = rows(lacking, kind, seeds)
        pairs = [zip(*sides, strict=True) for sides in zip(without, scored, strict=True)]
        without = [[moved(*pair) for pair in side] for side in pairs]
    expected = compare_rows(*([series(row, of)] for row, of in zip(without, seeds, strict=True)))
    assert (expected.common_examples, expected.all_examples) == (None, None)
    assert (found.test, found.items, found.seeds) == (expected.test, expected.items, expected.seeds)
    for name in ("effect", "p", "ci95", "detectable"):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9)


def moved(fewer: Score, given: Score) -> Score:
    means = [np.mean([value for value, _ in (one.examples or {}).values()]) for one in (fewer, given)]
    return Score(**{**vars(fewer), "value": given.value + means[0] - means[1]})


def test_a_row_without_seeds_has_one_run() -> None:
    ours, theirs = rows([[NONE, (3,), NONE], [(4,)]], "mean", [[0, 1, 2], [0]])
    found = compare_rows([series(ours, [0, 1, 2])], [series(theirs, [])])
    assert (found.common_examples, found.all_examples) == (58, 60)
    expected = rows([[(3, 4)] * 3, [(3, 4)]], "mean", [[0, 1, 2], [0]])
    plain = compare_rows([series(expected[0], [0, 1, 2])], [series(expected[1], [])])
    assert (found.effect, found.p) == pytest.approx((plain.effect, plain.p), rel=1e-9)


@pytest.mark.parametrize("kind", ["mean", "units"])
@pytest.mark.parametrize(
    ("lacking", "tested"),
    [
        ([[range(3), NONE, NONE], [NONE] * 3], True),  # 5 %
        ([[NONE] * 3, [range(4), NONE, NONE]], False),
        ([[(0, 1), (2, 3), NONE], [NONE] * 3], False),  # each seed lacks few, and together they lack 4
        ([[(0, 1), NONE, NONE], [(2, 3), NONE, NONE]], True),  # 2 of each side
        ([[(0, 10, 20, 30, 40, 50), NONE, NONE], [NONE] * 3], False),  # no unit is missing, and 10 % of the examples
    ],
)
def test_more_than_one_of_twenty_missing_on_a_side_gives_no_verdict(lacking: Any, tested: bool, kind: str) -> None:
    ours, theirs = (series(row, [0, 1, 2]) for row in rows(lacking, kind, SEEDS["paired"]))
    for found in (compare_rows([ours], [theirs]), compare_rows([theirs], [ours])):
        assert isinstance(found, Difference) == tested
        if not tested:
            assert "of 60 examples are missing in a run of one side" in str(found)


def test_an_example_without_weight_is_missing() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(2, 0.3, (2, 3, 100))
    weight_I = np.ones(100)
    empty_I = np.where(np.arange(100) < 20, 0.0, 1.0)
    made = [[score(value_I, weight_I, unit="perplexity") for value_I in side] for side in values]
    ended = [score(value_I, empty_I, unit="perplexity") for value_I in values[0]]
    found = compare_rows([series(ended, [0, 1, 2])], [series(made[1], [0, 1, 2])])
    assert "20 of 100 examples are missing" in str(found)


@pytest.mark.parametrize("kind", ["mean", "perplexity", "units"])
def test_an_interval_is_over_the_examples_of_every_seed(kind: str) -> None:
    lacking = [(7,), NONE, (8,)]
    (given, _), (fewer, _) = (rows([of, [NONE] * 3], kind, SEEDS["paired"]) for of in (lacking, [(7, 8)] * 3))
    summary, expected = summarise(given), summarise(fewer)
    assert summary.values == tuple(one.value for one in given)  # what was scored
    assert summary.n == 59
    assert summary.ci95_of == "seeds and items"
    assert summary.ci95 == pytest.approx(expected.ci95, rel=1e-9)
    assert [flag for flag in summary.flags if "58 of 60 examples" in flag]
    assert not expected.flags

    many, _ = rows([[(0, 1), (2, 3), NONE], [NONE] * 3], kind, SEEDS["paired"])
    told = summarise(many)
    assert (told.ci95, told.ci95_of) == (None, None)
    assert "4 of 60 examples are missing" in (told.ci95_missing or "")


@pytest.fixture
def entries(entry_of: Callable[..., Entry]) -> Callable[..., tuple[list[Entry], Callable[[Entry], Any]]]:
    """Return a function that makes the entries of two rows, and what returns their examples."""

    def make(made: Sequence[Sequence[Score]], **changes: Any) -> tuple[list[Entry], Callable[[Entry], Any]]:
        found, examples = [], {}
        for name, scores in zip(("emo", "mle"), made, strict=True):
            seeds = [] if len(scores) == 1 else list(range(len(scores)))
            fields = {"metrics": {"lm/score": vars(summarise(scores))}, "seeds": seeds, **changes}
            found.append(entry_of(name, **fields))
            examples[found[-1].id] = [{"lm/score": one.sampled} for one in scores]
        return found, lambda entry: examples[entry.id]

    return make


def test_a_contrast_says_how_many_examples_of_how_many(entries: Any) -> None:
    lacking = [[(7,), NONE, NONE], [NONE, (8,), NONE]]
    (emo, mle), examples_of = entries(rows(lacking, "mean", SEEDS["paired"]))
    compared = compare(mle, [emo], examples_of)
    (contrast,) = compared.contrasts
    assert contrast.verdict in ("better", "worse", "tied")
    assert (contrast.common_examples, contrast.all_examples) == (58, 60)
    assert contrast.candidate_mean == emo.metrics["lm/score"].mean  # of all that was scored
    assert "58 of 60 examples" in str(compare_table.report([compared]).notes)
    (plain,) = compare_table.to_json(compared)["contrasts"]
    assert (plain["common_examples"], plain["all_examples"]) == (58, 60)
    (line,) = csv.DictReader(io.StringIO(compare_table.to_csv([compared])))
    assert (line["common_examples"], line["all_examples"]) == ("58", "60")


def test_two_models_are_compared_on_their_common_examples(entries: Any) -> None:
    def models(*lacking: Collection[int]) -> Contrast:
        (emo, mle), examples_of = entries(rows([[of] for of in lacking], "mean", [[0], [0]]), kind="imported",
                                          source={"cite": "a file"})  # fmt: skip
        (contrast,) = compare_models(mle, [emo], examples_of, {}).contrasts
        return contrast

    found, expected = models((7,), (8, 9)), models((7, 8, 9), (7, 8, 9))
    assert (found.common_examples, found.all_examples) == (57, 60)
    assert (found.effect, found.p) == pytest.approx((expected.effect, expected.p), rel=1e-9)
    assert found.ci95 == pytest.approx(expected.ci95, rel=1e-9)
    undetermined = models((), (1, 2, 3, 4))
    assert undetermined.verdict == "undetermined"
    assert "4 of 60 examples are missing" in (undetermined.why or "")


@pytest.mark.parametrize("draw", range(4))
def test_equal_rows_of_which_one_lacks_an_example_are_equal(draw: int) -> None:
    rng = np.random.default_rng(draw)
    values = [rng.integers(0, 3, 300) / 2 for _ in range(3)]
    whole = [score(value_I, np.ones(300)) for value_I in values]
    lacking = [score(value_I, np.ones(300), (3,)) for value_I in values]
    found = compare_rows([series(whole, (0, 1, 2))], [series(lacking, (0, 1, 2))])
    assert (found.ci95, found.effect, found.common_examples) == (None, 0.0, 299)


def assert_same(found: Difference | str, expected: Difference | str) -> None:
    """Compare two tests, up to rounding."""
    assert isinstance(found, Difference)
    assert isinstance(expected, Difference)
    for name, value in vars(expected).items():
        if name == "noise":
            assert_same_noise(found.noise, expected.noise)
        else:
            assert getattr(found, name) == (value if value is None or isinstance(value, str) else pytest.approx(value))


def assert_same_noise(found: Uncertainty | None, expected: Uncertainty | None) -> None:
    """Compare two variances with their skewness, up to rounding."""
    assert found is not None
    assert expected is not None
    assert found.of == expected.of
    assert [df for _, df in found.parts] == pytest.approx([df for _, df in expected.parts])
    assert [part for part, _ in found.parts] == pytest.approx([part for part, _ in expected.parts], abs=1e-15)
    assert found.residual == pytest.approx(expected.residual)
    assert found.skewness == pytest.approx(expected.skewness)
    assert found.skewness_limits == pytest.approx(expected.skewness_limits)


def named_only_together(lacking: Collection[int]) -> dict[str, str]:
    """Return the units as a run without some examples names them: those that have several of its own examples."""
    left = [str(i) for i in range(60) if i not in lacking]
    sizes = Counter(UNITS[i] for i in left)
    return {i: UNITS[i] for i in left if sizes[UNITS[i]] > 1}


@pytest.mark.parametrize(("ours", "theirs"), [((6, 7), ()), ((), (9, 10)), ((6, 7), (59,)), ((6,), (7,))])
def test_a_missing_example_renames_no_unit_of_the_others(
    ours: tuple[int, ...], theirs: tuple[int, ...], entries: Any
) -> None:
    lacking = [ours, theirs]
    made = rows([[of] * 3 for of in lacking], "units", SEEDS["paired"])
    named = [
        [replace(one, units=named_only_together(of)) for one in row] for row, of in zip(made, lacking, strict=True)
    ]
    found, expected = (compare_rows(*([series(row, [0, 1, 2])] for row in both)) for both in (named, made))
    assert_same(found, expected)
    assert found.items == 20
    seeds = [within_seed(series(a, [0, 1, 2]), series(b, [0, 1, 2]), 0) for a, b in (named, made)]
    assert (seeds[0].effect, seeds[0].items) == (pytest.approx(seeds[1].effect), 20)
    assert seeds[0].ci95 == pytest.approx(seeds[1].ci95)
    contrasts = []
    for both in (named, made):
        (a, b), examples_of = entries([row[:1] for row in both], kind="imported", source={"cite": "a file"})
        contrasts += compare_models(b, [a], examples_of, {}).contrasts
    assert (contrasts[0].p, contrasts[0].items) == (pytest.approx(contrasts[1].p), 20)


def test_seeds_that_lack_examples_have_the_units_of_the_others() -> None:
    (made, _) = rows([[(6, 7), NONE, (59,)], [NONE] * 3], "units", SEEDS["paired"])
    named = [replace(one, units=named_only_together(of)) for one, of in zip(made, ((6, 7), (), (59,)), strict=True)]
    assert (summarise(named).ci95, summarise(named).units) == (pytest.approx(summarise(made).ci95), 20)


def test_examples_that_are_one_unit_in_any_run_are_one_unit() -> None:
    made = rows([[NONE] * 3] * 2, "mean", SEEDS["paired"])
    pairs = {str(i): f"pair {i // 2}" for i in range(60)}
    fours = {str(i): f"four {(i + 2) % 60 // 4}" for i in range(60)}
    named = [[replace(one, units=units) for one in row] for row, units in zip(made, (pairs, fours), strict=True)]
    alike = [[replace(one, units=fours) for one in row] for row in made]
    found, expected = (compare_rows(*([series(row, [0, 1, 2])] for row in both)) for both in (named, alike))
    assert_same(found, expected)
    assert (found.items, found.common_examples) == (15, None)


def test_the_order_of_examples_is_in_no_number() -> None:
    rng = np.random.default_rng(5)
    made = [score(rng.normal(0, 1, 300), np.ones(300), (7,)) for _ in range(3)]
    turned = [replace(one, examples=dict(list((one.examples or {}).items())[::-1])) for one in made]
    whole = [score(np.append(0.0, rng.normal(0, 1, 299)), np.ones(300)) for _ in range(3)]
    ours, theirs = series(made, [0, 1, 2]), series(turned, [0, 1, 2])
    found = compare_rows([ours, series(whole, [0, 1, 2])], [theirs, series(whole, [0, 1, 2])])
    assert (found.ci95, found.effect) == (None, 0.0)


# The mean over tasks that ask about the same items has their noise, and not less.

ITEMS = 40


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
    return item_I + draw.normal(0, 0.1, (3, ITEMS)), draw.normal(0, 0.1, (3, ITEMS))


@pytest.mark.parametrize("name", ["{digest}-{i}", "{i}-{digest}", "text {digest}"])
def test_a_task_that_stands_there_five_times_is_one(name: str, sides: tuple[np.ndarray, np.ndarray]) -> None:
    names = [name.format(i=i, digest=digest(i)) for i in range(ITEMS)]
    task = row(sides[0], names), row(sides[1], names)
    alone, together = found([task]), found([task] * 5)
    assert together.items == ITEMS
    assert_same(together, alone)


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
    whole, half, own = (draw.normal(size=(2, 3, count)) for count in (40, 20, 30))
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
    values = np.zeros((3, 2))
    tasks = [TaskItems(tuple(f"{digest(n)}-0" for n in of), (values, values), 2.0) for of in names]
    assert sorted(len(one.names) for one in joined_tasks(tasks)) == [2, 4]


# What a series takes of a summary and of an entry, and its linearised values, against leaving each item out.


def examples_of(value_I: Any, weight_I: Any = None) -> Examples:
    weights = np.ones(len(value_I)) if weight_I is None else np.asarray(weight_I, dtype=float)
    pairs = zip(np.asarray(value_I, dtype=float).tolist(), weights.tolist(), strict=True)
    return {f"{i:03}": pair for i, pair in enumerate(pairs)}


def plain_score(examples: Examples, unit: str = "nats", value: float | None = None, aggregate: Any = "mean") -> Score:
    centre = weighted_mean(examples) if value is None else value
    return Score(
        value=centre, n=len(examples), higher_is_better=True, unit=unit, examples=examples, aggregate=aggregate
    )


@pytest.mark.parametrize("centre", [None, 40.0])
@pytest.mark.parametrize("times", [1.0, 1e-4, 1e6])
def test_linearised_values_are_pseudo_values_around_the_score(centre: float | None, times: float) -> None:
    """Whatever unit the weights have."""
    rng = np.random.default_rng(0)
    value_I, weight_I = rng.normal(3, 1, 15), times * rng.lognormal(0, 1, 15)
    weight_I[4] = 0.0
    whole = np.average(value_I, weights=weight_I)
    without = [np.average(np.delete(value_I, i), weights=np.delete(weight_I, i)) for i in range(15)]
    pseudo_I = 15 * whole - 14 * np.array(without)
    around = whole if centre is None else centre
    given = examples_of(value_I, weight_I)
    found = linearise(given, sorted(given), float(around))
    assert found == pytest.approx(pseudo_I - pseudo_I.mean() + around)
    assert effective(given) == pytest.approx(weight_I.sum() ** 2 / np.square(weight_I).sum())
    assert weighted_mean(given) == pytest.approx(whole)


def test_one_item_with_all_of_the_weight_shows_no_spread() -> None:
    given = examples_of([5.0, 1.0, 2.0], [3.0, 0.0, 0.0])
    assert linearise(given, sorted(given), 5.0).tolist() == [5.0] * 3
    with pytest.raises(MetricError, match="sum to 0"):
        weighted_mean(examples_of([5.0, 1.0], [0.0, 0.0]))


def test_a_mean_of_perplexities_is_geometric() -> None:
    assert mean([10.0, 1000.0], log=True) == pytest.approx(100)
    assert mean([10.0, 1000.0], log=False) == 505


def test_examples_are_logarithms_if_their_mean_is_the_scores_within_a_thousandth() -> None:
    nats = examples_of([2.0, 4.0], [1.0, 1.0])
    for times, found in ((1.0, True), (1.0009, True), (0.9991, True), (1.0012, False), (0.9988, False)):
        assert is_log(nats, times * math.exp(3)) == found
    assert not is_log(nats, 3.0)
    assert not is_log(examples_of([1e4, 1e4]), 20.0)


@pytest.mark.parametrize(
    ("unit", "values", "reach"),
    [
        ("fraction", (0.5, 0.5), 1.0),
        ("fraction", (0.5004, 0.5), 1.0),  # within a thousandth of the mean of its examples
        ("fraction", (0.502, 0.5), 0.0),  # pseudo-values of one seed
        ("fraction", (0.5, 0.502), 0.0),
        ("points", (0.5, 0.5), math.inf),
        ("perplexity", (math.exp(0.5), math.exp(0.5)), math.inf),
        ("perplexity", (math.exp(0.5), 7.0), 0.0),
    ],
)
def test_how_far_an_item_can_reach(unit: str, values: Sequence[float], reach: float) -> None:
    given = [examples_of([0.0, 1.0]), examples_of([0.25, 0.75])]
    made = [plain_score(e, unit, v, "jackknife") for e, v in zip(given, values, strict=True)]
    row = Series.of(summarise(made), [0, 1], given)
    assert row.reach == reach
    assert row.log_scale == (unit == "perplexity")


def test_examples_of_a_perplexity_that_are_no_logarithms_are_on_the_scores_scale() -> None:
    given = examples_of([4.0, 6.0])
    summary = summarise([plain_score(given, "perplexity", 5.0, "jackknife")])
    assert Series.of(summary, [0], None).log_scale
    assert not Series.of(summary, [0], [given]).log_scale
    assert Series.of(summary, [0], [examples_of([math.log(5)] * 2)]).log_scale


def plain(values: Sequence[float], n: int = 9) -> dict[str, Any]:
    made = [Score(value=v, n=n, higher_is_better=True, unit="nats", aggregate="corpus") for v in values]
    return to_plain(summarise(made))


def test_the_values_of_an_entry_have_its_seeds(entry_of: Callable[..., Entry]) -> None:
    row = Series.of_entry(entry_of("emo", metrics={"t/x": plain([1.0, 2.0, 4.0])}, seeds=[3, 5, 8]), "t/x", None)
    assert (row.values, row.examples, row.of_examples) == ({3: 1.0, 5: 2.0, 8: 4.0}, None, True)
    assert Series.of_entry(entry_of("emo", metrics={"t/x": plain([1.0])}), "t/y", None) is None
    row = Series.of_entry(entry_of("emo", metrics={"t/x": plain([1.0], n=1)}, seeds=[3]), "t/x", None)
    assert (row.values, row.of_examples) == ({3: 1.0}, False)
    row = Series.of_entry(entry_of("pretrained", metrics={"t/x": plain([1.0])}), "t/x", None)
    assert row.values == {None: 1.0}


def test_a_number_taken_from_elsewhere_has_one_value_or_its_seeds(entry_of: Callable[..., Entry]) -> None:
    taken = {"kind": "imported", "source": {"cite": "a paper"}}

    def values(seeds: Sequence[int], values: Sequence[float]) -> Mapping[int | None, float] | None:
        metrics = {"t/x": plain(values)}
        row = Series.of_entry(entry_of("emo", metrics=metrics, seeds=list(seeds), **taken), "t/x", None)
        return None if row is None else row.values

    assert values([0, 1, 2], [5.0]) == {None: 5.0}  # the mean of three seeds, of which each is not known
    assert values([4], [5.0]) == {4: 5.0}
    assert values([], [5.0]) == {None: 5.0}
    assert values([0, 1], [5.0, 6.0]) == {0: 5.0, 1: 6.0}
    assert values([0, 1, 2], [5.0, 6.0]) is None
    assert values([], [5.0, 6.0]) is None


@pytest.mark.parametrize("seeds", [[], [5], [1, 2]])
def test_one_imported_training_is_no_base_for_a_verdict(seeds: list[int], entry_of: Callable[..., Entry]) -> None:
    """Three seeds against one number of a trained model: its own seed is one of many, too."""
    draw = np.random.default_rng(0)
    of_seeds = [examples_of(list(draw.normal(mean, 1, 40))) for mean in (2, 2, 2, 0)]
    metrics = [{"t/x": to_plain(summarise([plain_score(one) for one in of]))} for of in (of_seeds[:3], of_seeds[3:])]
    taken = {"kind": "imported", "source": {"cite": "a file"}}
    rows = {
        "emo": (metrics[0], [0, 1, 2], of_seeds[:3]),
        "mle": (metrics[1], seeds, of_seeds[3:]),
        "pretrained": (metrics[1], [], of_seeds[3:]),
    }
    made = []
    for name, (of, own, examples) in rows.items():
        entry = entry_of(name, metrics=of, seeds=own, **taken)
        made.append(Series.of_entry(entry, "t/x", [{"t/x": one} for one in examples]))
    emo, mle, pretrained = (row for row in made if row is not None)
    for sides in (([emo], [mle]), ([mle], [emo])):
        assert isinstance(compare_rows(*sides), str)
    assert not isinstance(compare_rows([emo], [pretrained]), str)


def test_examples_are_taken_if_every_run_has_them(entry_of: Callable[..., Entry]) -> None:
    given = [examples_of([1.0, 2.0]), examples_of([3.0, 5.0])]
    entry = entry_of("emo", metrics={"t/x": to_plain(summarise([plain_score(e) for e in given]))}, seeds=[0, 1])
    runs = [{"t/x": examples} for examples in given]
    row = Series.of_entry(entry, "t/x", runs)
    assert row.examples == dict(enumerate(given))
    for fewer in ([runs[0], {}], runs[:1], [{}, runs[1]], [], [{"t/y": given[0]}] * 2):
        row = Series.of_entry(entry, "t/x", fewer)
        assert (row.examples, row.of_examples) == (None, True)


def test_the_score_of_fewer_examples_is_their_mean_or_moves_with_it() -> None:
    """As of a mean, of a perplexity, and of pseudo-values around another score."""
    value_I, weight_I = np.array([1.0, 2.0, 4.0, 9.0]), np.array([1.0, 2.0, 1.0, 4.0])
    given = examples_of(value_I, weight_I)
    whole, kept = np.average(value_I, weights=weight_I), np.average(value_I[:3], weights=weight_I[:3])
    common = Common(frozenset(sorted(given)[:3]), 4, {})
    for value, log, expected in (
        (whole, False, kept),
        (whole + 3, False, kept + 3),
        (math.exp(whole), True, math.exp(kept)),
        (math.exp(whole + 1), True, math.exp(kept + 1)),
    ):
        row = Series(values={7: value}, examples={7: given}, log_scale=log)
        found = row.only(common)
        assert found.values[7] == pytest.approx(expected)
        assert found.examples == {7: {key: given[key] for key in sorted(given)[:3]}}
        assert found.centre(7) == pytest.approx(math.log(expected) if log else expected)
    complete = Common(frozenset(given), 4, None)
    assert row.only(complete) is row


def test_items_are_in_the_order_of_their_ids_whatever_that_of_a_file() -> None:
    given = {"b": (2.0, 1.0), "10": (1.0, 1.0), "9": (5.0, 1.0), "a": (4.0, 1.0)}
    turned = dict(reversed(given.items()))
    row = Series(values={0: 3.0, 1: 3.0}, examples={0: given, 1: turned}, log_scale=False)
    assert row.linearised_SI.tolist() == [[1.0, 5.0, 4.0, 2.0]] * 2


def test_a_row_without_seeds_gives_its_one_value_for_every_seed() -> None:
    given = examples_of([1.0, 3.0], [1.0, 0.0])
    row = Series(values={None: 1.0}, examples={None: given}, log_scale=False)
    of_seeds = row.of_seeds([4, 9])
    assert of_seeds.values == {4: 1.0, 9: 1.0}
    assert of_seeds.examples == {4: given, 9: given}
    assert of_seeds.linearised_SI.shape == (2, 2)
    assert [run.ids for run in of_seeds.scored.values()] == [{"000"}] * 2  # what has no weight is in no score
    assert of_seeds.of_seeds([9]).values == {9: 1.0}
    assert of_seeds.of_seeds([4, 9]) is of_seeds
