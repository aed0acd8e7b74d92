"""Where a run lacks an example, everything is tested as if no run had it; where it lacks many, nothing is."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_scores import score, series, within_seed

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.compare import Contrast, compare, compare_models
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.summary import summarise
from emobench.report import compare_table
from emobench.tasks.scores import Score

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
    for name, value in vars(expected).items():
        assert getattr(found, name) == (value if value is None or isinstance(value, str) else pytest.approx(value))


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
