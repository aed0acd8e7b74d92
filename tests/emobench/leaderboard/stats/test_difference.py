"""The intervals cover, the comparison does not cry wolf, and both agree with independent references."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from made_scores import scores, series
from scipy import stats

from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score


def plain_series(values_SI: np.ndarray) -> Series:
    """Return the same as `series(scores(...))`, faster."""
    return Series(
        values={s: float(row.mean()) for s, row in enumerate(values_SI)},
        examples={s: {str(i): (float(v), 1.0) for i, v in enumerate(row)} for s, row in enumerate(values_SI)},
        log_scale=False,
        of_examples=True,
    )


def difference(a: Series, b: Series) -> Difference | None:
    found = compare_rows([a], [b])
    return None if isinstance(found, str) else found


def compared(a: list[Series], b: list[Series]) -> str:
    """Return why two rows cannot be compared."""
    found = compare_rows(a, b)
    assert isinstance(found, str)
    return found


def sample(rng: np.random.Generator, seeds: int, items: int, seed_sd: float, item_sd: float) -> np.ndarray:
    """Return (S, I) values around 0 with residuals of spread 1; `item_sd` may be an array shared by callers."""
    seed_S1 = rng.normal(0, seed_sd, (seeds, 1))
    return seed_S1 + rng.normal(0, item_sd, items) + rng.normal(0, 1, (seeds, items))


def test_p_and_interval_agree() -> None:
    """The interval excludes 0 exactly where p is below 5 %."""
    rng = np.random.default_rng(3)
    seen = set()
    for shift in np.linspace(0, 0.6, 40):
        found = difference(
            series(scores(sample(rng, 3, 100, 0, 0.5) + shift)), series(scores(sample(rng, 3, 100, 0, 0.5)))
        )
        excludes = not found.ci95[0] <= 0 <= found.ci95[1]
        assert excludes == (found.p < 0.05)
        seen.add(excludes)
    assert seen == {True, False}


def test_without_examples_three_paired_seeds_are_students_paired_t() -> None:
    a, b = [0.81, 0.84, 0.80, 0.86], [0.80, 0.81, 0.79, 0.82]
    left, right = (series(scores(np.array(v)[:, None], examples=False)) for v in (a, b))
    found = difference(left, right)
    want = stats.ttest_rel(a, b)
    assert found.p == pytest.approx(float(want.pvalue), rel=1e-6)
    assert found.ci95 == pytest.approx(tuple(want.confidence_interval()), rel=1e-9)
    assert (found.test, found.seeds) == ("paired t over seeds", 4)


@pytest.mark.parametrize("examples", [True, False])
@pytest.mark.parametrize("seeds", [1, 2])
def test_below_three_seeds_nothing_is_said(seeds: int, examples: bool) -> None:
    rng = np.random.default_rng(12)
    a, b = (series(scores(sample(rng, seeds, 30, 0, 0.1) + shift, examples=examples)) for shift in (0, 9))
    assert difference(a, b) is None
    assert f"seeds in common: {seeds}; a verdict needs 3" in compared([a], [b])


def test_two_seeds_of_one_side_are_too_few_whatever_the_other_has() -> None:
    rng = np.random.default_rng(13)
    many, few = (series(scores(sample(rng, len(s), 30, 0, 0.1)), s) for s in ([0, 1, 2, 3, 4], [4, 9]))
    for sides in ((many, few), (few, many)):
        assert "seeds in common: 1; a verdict needs 3" in compared([sides[0]], [sides[1]])


def test_three_common_seeds_are_paired() -> None:
    rng = np.random.default_rng(4)
    a, b = scores(sample(rng, 5, 30, 0.1, 1)), scores(sample(rng, 4, 30, 0.1, 1))
    some = difference(series(a, [0, 1, 2, 3, 7]), series(b, [1, 2, 3, 9]))
    assert (some.seeds, some.items, some.test) == (3, 30, "random effects of seeds and items")
    assert some == difference(series(a[1:4], [1, 2, 3]), series(b[:3], [1, 2, 3]))


def test_other_seeds_are_compared_by_welch() -> None:
    a, b = [0.81, 0.84, 0.80, 0.86], [0.80, 0.81, 0.75]
    left, right = (
        series(scores(np.array(v)[:, None], examples=False), s) for v, s in ((a, [0, 1, 2, 3]), (b, [5, 6, 7]))
    )
    found = difference(left, right)
    want = stats.ttest_ind(a, b, equal_var=False)
    assert found.p == pytest.approx(float(want.pvalue), rel=1e-6)
    assert found.ci95 == pytest.approx(tuple(want.confidence_interval()), rel=1e-9)
    assert (found.test, found.seeds, found.items) == ("Welch's t over seeds", 3, None)


def test_equal_rows_are_equal_and_a_constant_shift_is_undetermined() -> None:
    a = series(scores(sample(np.random.default_rng(14), 3, 20, 0.1, 1)))
    same = difference(a, a)
    assert (same.effect, same.ci95, same.p, same.detectable) == (0, None, 1, None)
    shifted = series(scores(np.array([[1.0], [2.0], [3.0]]), examples=False))
    by_one = series(scores(np.array([[2.0], [3.0], [4.0]]), examples=False))
    assert difference(shifted, by_one) is None
    assert "same amount" in compared([shifted], [by_one])


def test_noise_that_cannot_be_known_is_not_left_out() -> None:
    """Where examples exist, seeds alone say too little; so does one corpus score of a row without seeds."""
    rng = np.random.default_rng(19)
    a, b = (scores(sample(rng, 3, 20, 0, 1) + shift) for shift in (0, 9))
    other = [Score(**{**vars(s), "examples": {f"x{k}": v for k, v in (s.examples or {}).items()}}) for s in b]
    absent = Series.of(summarise(b), [0, 1, 2], None)
    for rival in (series(other), absent):
        assert difference(series(a), rival) is None
        assert "not available for the same examples" in compared([series(a)], [rival])
        assert "not available" in compared([series(a), series(a)], [series(b), rival])
    plain = series(scores(np.array([[0.8]]), examples=False), [])
    trained = series(scores(np.array([[0.82], [0.822], [0.824]]), examples=False))
    assert difference(trained, plain) is None
    assert "one value without seeds" in compared([trained], [plain])


def test_a_score_of_a_corpus_needs_pseudo_values() -> None:
    """Seeds that share their texts miss the noise of these: a t test over them rejects 9 to 16 % of true nulls."""
    a, b = ([0.81, 0.84, 0.80], [0.70, 0.71, 0.69])
    for n, told in ((1000, True), (None, True), (1, False)):
        rows = []
        for values in (a, b):
            made = [Score(value=v, n=1000, higher_is_better=True, unit="fraction", aggregate="corpus") for v in values]
            rows.append(Series.of(dataclasses.replace(summarise(made), n=n), [0, 1, 2], None))
        found = compare_rows(rows[:1], rows[1:])
        assert (found == "the per-example results of both sides are not available for the same examples") == told


def test_few_items_are_too_few() -> None:
    rng = np.random.default_rng(20)
    for items in (9, 10):
        a, b = (series(scores(sample(rng, 3, items, 0, 1) + shift)) for shift in (0, 9))
        assert (difference(a, b) is None) == (items < 10)


def test_a_row_without_seeds_is_constant_over_its_rivals() -> None:
    rng = np.random.default_rng(6)
    trained = scores(sample(rng, 3, 100, 0.05, 1) + 1)
    plain = scores(sample(rng, 1, 100, 0, 1))
    found = difference(series(trained), series(plain, []))
    assert found.effect == pytest.approx(np.mean([s.value for s in trained]) - plain[0].value)
    mirrored = difference(series(plain, []), series(trained))
    assert (mirrored.effect, mirrored.p) == (pytest.approx(-found.effect), pytest.approx(found.p))


def test_float_rounding_over_seeds_is_no_spread() -> None:
    """Trainings of one step: seeds are equal but for the last digits, so that nothing is known of another seed."""
    rng = np.random.default_rng(3)
    item_I = rng.normal(6, 1, 20)

    def row(mean: float, noise: float) -> Series:
        return series(scores(mean + item_I + rng.normal(0, noise, (3, 20))))

    dust, far = row(457, 4e-6), row(458, 4e-6)
    assert "one step" in compared([dust], [far])
    honest = difference(row(457, 0.01), row(458, 0.01))
    assert honest.p < 0.05
    assert difference(dust, row(458, 0.01)) is not None  # one side's seeds are enough


def test_one_other_answer_of_a_large_test_is_no_rounding() -> None:
    rng = np.random.default_rng(4)
    answers_SI = np.repeat((rng.random((1, 10_000)) < 0.7).astype(float), 3, axis=0)
    other_SI = np.repeat((rng.random((1, 10_000)) < 0.6).astype(float), 3, axis=0)
    assert "one step" in compared([plain_series(answers_SI)], [plain_series(other_SI)])
    other_SI[0, 0] = 1 - other_SI[0, 0]
    found = difference(plain_series(answers_SI), plain_series(other_SI))
    assert found.p < 0.05


def test_seeds_are_those_that_every_task_has() -> None:
    rng = np.random.default_rng(7)
    values = {task: rng.normal(0.7, 0.05, (2, 5)) for task in "xyz"}
    kept = {"x": [0, 1, 2, 3, 4], "y": [4, 2, 1, 0], "z": [0, 1, 3, 4]}
    sides = [
        [series(scores(of[side][kept[task]][:, None], examples=False), kept[task]) for task, of in values.items()]
        for side in (0, 1)
    ]
    common = [0, 1, 4]
    for order in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        found = compare_rows(*([side[place] for place in order] for side in sides))
        left, right = (np.mean([of[side][common] for of in values.values()], axis=0) for side in (0, 1))
        assert (found.seeds, found.p) == (3, pytest.approx(stats.ttest_rel(left, right).pvalue))


def test_scores_as_they_are_unless_all_are_perplexities() -> None:
    """Means over tasks, given without their units' names."""
    rng = np.random.default_rng(8)
    values = rng.uniform(5, 9, (2, 2, 3))  # side, task, seed

    def found(*logs: bool) -> Difference:
        sides = [
            [
                Series(values=dict(enumerate(of)), examples=None, log_scale=log)
                for of, log in zip(side, logs, strict=True)
            ]
            for side in values
        ]
        return compare_rows(*sides)

    for logs, scaled in (((True, True), np.log(values)), ((True, False), values), ((False, True), values)):
        made = found(*logs)
        left, right = scaled.mean(1)
        assert made.log_scale == all(logs)
        assert made.effect == pytest.approx((left - right).mean())
        assert made.p == pytest.approx(stats.ttest_rel(left, right).pvalue)


@pytest.mark.parametrize("seeds", [[0, 1, 2], [5, 6, 7]])
def test_items_that_are_all_alike_give_no_verdict_unless_unseen_ones_cannot_undo_it(seeds: list[int]) -> None:
    """All of 60 items differ by .2; up to 4.9 % unseen ones that differ by 1 the other way could undo .051."""
    rng = np.random.default_rng(10)
    rows = []
    for level in (0.4, 0.2):
        rest_SI = rng.normal(0, 0.01, (3, 60))
        rows.append(plain_series(level + rng.normal(0, 0.004, (3, 1)) + rest_SI - rest_SI.mean(0)))
    a, b = rows[0], dataclasses.replace(
        rows[1],
        values=dict(zip(seeds, rows[1].values.values(), strict=True)),
        examples=dict(zip(seeds, (rows[1].examples or {}).values(), strict=True)),
    )  # fmt: skip
    for reach, verdict in (
        ((np.inf, np.inf), False),
        ((1.0, np.inf), True),
        ((np.inf, 0.0), True),
        ((9.0, 9.0), False),
    ):
        sides = [dataclasses.replace(row, reach=most) for row, most in zip((a, b), reach, strict=True)]
        found = compare_rows(sides[:1], sides[1:])
        assert isinstance(found, Difference) == verdict
        assert verdict or found == random_effects.ALIKE
