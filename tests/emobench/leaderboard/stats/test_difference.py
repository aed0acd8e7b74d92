"""The intervals cover, the comparison does not cry wolf, and both agree with independent references."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from emobench.config import to_plain
from emobench.errors import MetricError
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score


def scores(values_SI: np.ndarray, *, examples: bool = True, unit: str = "nats") -> list[Score]:
    """Return a plain-mean score for each seed."""
    return [
        Score(
            value=float(row.mean()),
            n=len(row),
            higher_is_better=True,
            unit=unit,
            examples={str(i): (float(v), 1.0) for i, v in enumerate(row)} if examples else None,
            aggregate="mean" if examples else "corpus",
        )
        for row in values_SI
    ]


def series(given: list[Score], seeds: list[int] | None = None) -> Series:
    examples = [s.examples for s in given if s.examples]
    keys = list(range(len(given))) if seeds is None else seeds
    return Series.of(summarise(given), keys, examples or None)


def plain_series(values_SI: np.ndarray) -> Series:
    """Return the same as `series(scores(...))`, faster."""
    return Series(
        values={s: float(row.mean()) for s, row in enumerate(values_SI)},
        examples={s: {str(i): (float(v), 1.0) for i, v in enumerate(row)} for s, row in enumerate(values_SI)},
        higher_is_better=True,
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


# The expectations below are worked out by scipy and by hand, not by the module.


def test_one_seed_covers_the_items_only() -> None:
    values_I = np.array([0.2, 0.9, 0.4, 0.7, 0.5])
    summary = summarise(scores(values_I[None]))
    want = stats.t.interval(0.95, 4, loc=values_I.mean(), scale=stats.sem(values_I))
    assert summary.ci95 == pytest.approx(want, rel=1e-12)
    assert summary.ci95_of == "items"
    assert summary.std is None
    assert (summary.n, summary.values) == (5, (pytest.approx(0.54),))


def test_without_examples_the_interval_is_a_t_interval_over_seeds() -> None:
    values = [0.80, 0.83, 0.81]
    summary = summarise(scores(np.array(values)[:, None], examples=False, unit="fraction"))
    want = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert summary.ci95 == pytest.approx(want, rel=1e-12)
    assert summary.ci95_of == "seeds"
    assert summary.std == pytest.approx(stats.tstd(values))


def test_without_examples_one_seed_has_no_interval_and_says_why() -> None:
    summary = summarise(scores(np.array([[0.8]]), examples=False))
    assert (summary.ci95, summary.ci95_of) == (None, None)
    assert summary.ci95_missing == "one seed, and no per-example results"


def test_seeds_and_items_by_hand() -> None:
    """A 2 x 3 table: mean squares from the textbook sums, then the critical value between both quantiles."""
    values_SI = np.array([[1.0, 2.0, 6.0], [2.0, 5.0, 8.0]])
    ms_seeds = 3 * (2 * 1.0**2) / 1  # seed means 3 and 5 around 4
    ms_items = 2 * (2.5**2 + 0.5**2 + 3.0**2) / 2  # item means 1.5, 3.5, 7
    ms_residual = (2 * 0.5**2 + 2 * 0.5**2 + 0.0) / 2  # residuals +-.5, -+.5, 0
    seed_part, item_part = ms_seeds / 6, (ms_items - ms_residual) / 6
    t_seeds, t_items = stats.t.ppf(0.975, 1), stats.t.ppf(0.975, 2)
    critical = t_items + (t_seeds - t_items) * (seed_part / (seed_part + item_part)) ** 1.25
    half = critical * math.sqrt(seed_part + item_part)
    summary = summarise(scores(values_SI))
    assert summary.ci95 == pytest.approx((4 - half, 4 + half), rel=1e-12)
    assert summary.ci95_of == "seeds and items"


def test_a_weighted_mean_has_the_jackknifes_variance_with_the_freedom_of_its_weights() -> None:
    rng = np.random.default_rng(2)
    value_I, weight_I = rng.normal(3, 1, 400), rng.integers(5, 60, 400).astype(float)
    mean = float(np.average(value_I, weights=weight_I))
    score = Score(
        value=math.exp(mean),
        n=400,
        higher_is_better=False,
        unit="perplexity",
        aggregate="exp_mean",
        examples={str(i): (float(v), float(w)) for i, (v, w) in enumerate(zip(value_I, weight_I, strict=True))},
    )
    rest = (value_I @ weight_I - value_I * weight_I) / (weight_I.sum() - weight_I)
    error = math.sqrt(399 / 400 * np.square(rest - rest.mean()).sum())
    low, high = summarise([score]).ci95 or (0, 0)
    freedom = weight_I.sum() ** 2 / np.square(weight_I).sum() - 1
    assert 300 < freedom < 399
    assert math.log(high) - math.log(low) == pytest.approx(2 * stats.t.ppf(0.975, freedom) * error)
    assert math.sqrt(low * high) == pytest.approx(math.exp(mean))


def test_examples_of_one_unit_count_once() -> None:
    """Twenty passages of five questions: the same as their means, and the interval over their number."""
    rng = np.random.default_rng(3)
    values_SUQ = rng.normal(0, 1, (3, 20, 1)) + rng.normal(0, 0.3, (3, 20, 5))
    units = {str(i): f"passage {i // 5}" for i in range(100)}
    given = [dataclasses.replace(score, units=units) for score in scores(values_SUQ.reshape(3, 100))]
    found, of_means = summarise(given), summarise(scores(values_SUQ.mean(2)))
    assert (found.n, found.units, of_means.n, of_means.units) == (100, 20, 20, 20)
    assert found.ci95 == pytest.approx(of_means.ci95)
    assert summarise(scores(values_SUQ.reshape(3, 100))).units == 100


def test_blocks_of_entries_without_units_are_taken_for_no_examples(entry_of: Callable[..., Entry]) -> None:
    """Recorded before schema 4: neighbouring blocks of one text, which are not independent."""
    rng = np.random.default_rng(4)
    given = scores(rng.normal(3, 1, (3, 40)))
    runs = [{f"wikitext2/{name}": score.examples or {} for name in ("ppl_test", "rouge1")} for score in given]
    plain = to_plain(summarise(given))
    old, new = ({**plain, "units": units} for units in (None, 40))
    for name, summary, there in (("ppl_test", old, False), ("ppl_test", new, True), ("rouge1", old, True)):
        entry = entry_of(metrics={f"wikitext2/{name}": summary}, protocols={"wikitext2": "paper@1"}, seeds=[0, 1, 2])
        row = Series.of_entry(entry, f"wikitext2/{name}", runs)
        assert row is not None
        assert (row.examples is not None) == there
        assert row.of_examples  # so that seeds alone decide nothing


def test_an_interval_of_a_fraction_stays_one() -> None:
    values_SI = np.array([[1.0] * 19 + [0.0], [1.0] * 20])
    low, high = summarise(scores(values_SI, unit="fraction")).ci95 or (0, 0)
    assert high == 1.0
    assert 0 <= low < 0.975


def test_no_spread_is_no_certainty() -> None:
    summary = summarise(scores(np.ones((3, 20)), unit="fraction"))
    assert (summary.mean, summary.std, summary.ci95) == (1.0, 0.0, None)
    assert "all values are equal" in (summary.ci95_missing or "")


def test_other_items_for_each_seed_fall_back_to_the_seeds() -> None:
    first, second = scores(np.array([[0.1, 0.2, 0.3], [0.3, 0.4, 0.8]]))
    renamed = {f"other {key}": pair for key, pair in (second.examples or {}).items()}
    moved = Score(value=second.value, n=3, higher_is_better=True, unit="nats", examples=renamed)
    assert summarise([first, moved]).ci95_of == "seeds"


def test_flags_are_united_and_the_smallest_n_is_told() -> None:
    given = [
        Score(value=0.5, n=n, higher_is_better=True, unit="fraction", flags=flags, aggregate="corpus")
        for n, flags in ((40, ("small_n",)), (30, ("small_n", "truncated")))
    ]
    summary = summarise(given)
    assert (summary.flags, summary.n) == (("small_n", "truncated"), 30)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([], "over no seeds"),
        ([Score(value=math.nan, n=1, higher_is_better=None, unit="nats")], "A score is nan"),
        ([Score(value=95.2, n=1, higher_is_better=True, unit="fraction")], r"95.2; a fraction lies in \[0, 1\]"),
        ([Score(value=0.5, n=0, higher_is_better=True, unit="fraction")], "of no examples"),
        ([Score(value=0.5, n=1, higher_is_better=True, unit=unit) for unit in ("nats", "fraction")], "differ in unit"),
        ([Score(value=0.5, n=1, higher_is_better=True, unit="nats", examples={"0": (0.7, 1)})], "mean of its examples"),
        ([Score(value=0.5, n=1, higher_is_better=True, unit="nats", examples={"0": (0.5, 0)})], "weights"),
    ],
)
def test_scores_that_cannot_be_summarised(given: list[Score], told: str) -> None:
    with pytest.raises(MetricError, match=told):
        summarise(given)


def test_the_fast_series_is_the_real_one() -> None:
    values_SI = sample(np.random.default_rng(0), 2, 5, 1, 1)
    assert plain_series(values_SI) == series(scores(values_SI))


def test_p_and_interval_agree() -> None:
    """The interval excludes 0 exactly where p is below 5 %."""
    rng = np.random.default_rng(3)
    seen = set()
    for shift in np.linspace(0, 0.6, 40):
        found = difference(
            series(scores(sample(rng, 3, 50, 0, 0.5) + shift)), series(scores(sample(rng, 3, 50, 0, 0.5)))
        )
        assert found is not None
        excludes = not found.ci95[0] <= 0 <= found.ci95[1]
        assert excludes == (found.p < 0.05)
        seen.add(excludes)
    assert seen == {True, False}


def test_without_examples_three_paired_seeds_are_students_paired_t() -> None:
    a, b = [0.81, 0.84, 0.80, 0.86], [0.80, 0.81, 0.79, 0.82]
    left, right = (series(scores(np.array(v)[:, None], examples=False)) for v in (a, b))
    found = difference(left, right)
    assert found is not None
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
    assert f"{seeds} common seed{'s' * (seeds > 1)}; 3 are needed" in compared([a], [b])


def test_three_common_seeds_are_paired() -> None:
    rng = np.random.default_rng(4)
    a, b = scores(sample(rng, 5, 30, 0.1, 1)), scores(sample(rng, 4, 30, 0.1, 1))
    some = difference(series(a, [0, 1, 2, 3, 7]), series(b, [1, 2, 3, 9]))
    assert some is not None
    assert (some.seeds, some.items, some.test) == (3, 30, "random effects of seeds and items")
    assert some == difference(series(a[1:4], [1, 2, 3]), series(b[:3], [1, 2, 3]))


def test_other_seeds_are_compared_by_welch() -> None:
    a, b = [0.81, 0.84, 0.80, 0.86], [0.80, 0.81, 0.75]
    left, right = (
        series(scores(np.array(v)[:, None], examples=False), s) for v, s in ((a, [0, 1, 2, 3]), (b, [5, 6, 7]))
    )
    found = difference(left, right)
    assert found is not None
    want = stats.ttest_ind(a, b, equal_var=False)
    assert found.p == pytest.approx(float(want.pvalue), rel=1e-6)
    assert found.ci95 == pytest.approx(tuple(want.confidence_interval()), rel=1e-9)
    assert (found.test, found.seeds, found.items) == ("Welch's t over seeds", 3, None)


def test_equal_rows_are_equal_and_a_constant_shift_is_undetermined() -> None:
    a = series(scores(sample(np.random.default_rng(14), 3, 20, 0.1, 1)))
    same = difference(a, a)
    assert same is not None
    assert (same.effect, same.ci95, same.p, same.test, same.detectable) == (0, None, 1, "equal values", None)
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


def test_few_items_are_too_few() -> None:
    rng = np.random.default_rng(20)
    for items in (9, 10):
        a, b = (series(scores(sample(rng, 3, items, 0, 1) + shift)) for shift in (0, 9))
        assert (difference(a, b) is None) == (items < 10)


def test_the_mean_over_tasks_without_items_is_students_t_of_the_seeds_means() -> None:
    rng = np.random.default_rng(15)
    a, b = rng.normal(0.7, 0.05, (4, 3)), rng.normal(0.6, 0.05, (4, 3))  # tasks x seeds
    left, right = ([series(scores(row[:, None], examples=False)) for row in side] for side in (a, b))
    found = compare_rows(left, right)
    assert isinstance(found, Difference)
    want = stats.ttest_rel(a.mean(0), b.mean(0))
    assert (found.p, found.effect) == (pytest.approx(float(want.pvalue)), pytest.approx((a - b).mean()))


def test_a_row_without_seeds_is_constant_over_its_rivals() -> None:
    rng = np.random.default_rng(6)
    trained = scores(sample(rng, 3, 100, 0.05, 1) + 1)
    plain = scores(sample(rng, 1, 100, 0, 1))
    found = difference(series(trained), series(plain, []))
    assert found is not None
    assert found.effect == pytest.approx(np.mean([s.value for s in trained]) - plain[0].value)
    mirrored = difference(series(plain, []), series(trained))
    assert mirrored is not None
    assert (mirrored.effect, mirrored.p) == (pytest.approx(-found.effect), pytest.approx(found.p))


def test_the_interval_covers_seeds_and_items() -> None:
    """3 seeds x 200 items, both with variance (and neither one negligible): .92 to .98 of intervals hold the mean."""
    rng = np.random.default_rng(10)
    held = []
    for _ in range(800):
        low, high = summarise(scores(sample(rng, 3, 200, 0.1, 1.0))).ci95 or (1, 1)
        held.append(low <= 0 <= high)
    assert 0.92 <= np.mean(held) <= 0.98


@pytest.mark.parametrize("examples", [False, True])
def test_float_rounding_over_seeds_is_no_spread(examples: bool) -> None:
    """Trainings of one step: seeds are equal but for the last digits, so that nothing is known of another seed."""
    rng = np.random.default_rng(3)
    item_I = rng.normal(6, 1, 20)

    def row(mean: float, noise: float) -> Series:
        return series(scores(mean + item_I + rng.normal(0, noise, (3, 20)), examples=examples))

    dust, far = row(457, 4e-6), row(458, 4e-6)
    assert "one step" in compared([dust], [far])
    honest = difference(row(457, 0.01), row(458, 0.01))
    assert honest is not None
    assert honest.p < 0.05
    assert difference(dust, row(458, 0.01)) is not None  # one side's seeds are enough


def test_one_other_answer_of_a_large_test_is_no_rounding() -> None:
    rng = np.random.default_rng(4)
    answers_SI = np.repeat((rng.random((1, 10_000)) < 0.7).astype(float), 3, axis=0)
    other_SI = np.repeat((rng.random((1, 10_000)) < 0.6).astype(float), 3, axis=0)
    assert "one step" in compared([plain_series(answers_SI)], [plain_series(other_SI)])
    other_SI[0, 0] = 1 - other_SI[0, 0]
    found = difference(plain_series(answers_SI), plain_series(other_SI))
    assert found is not None
    assert found.p < 0.05


def test_perplexities_that_are_equal_up_to_rounding_have_no_spread() -> None:
    made = [
        Series(values=dict(enumerate(v)), examples=None, higher_is_better=False, log_scale=True)
        for v in ([463.264, 463.264004, 463.264002], [470.0, 470.000004, 470.0])
    ]
    assert "one step" in compared(made[:1], made[1:])


def test_a_difference_that_is_rounding_is_none() -> None:
    left = np.array([[0.51], [0.52], [0.53]])
    a, b = (series(scores(values, examples=False)) for values in (left, left + np.array([[1e-8], [3e-8], [2e-8]])))
    assert "same amount" in compared([a], [b])


def test_seeds_of_unlike_examples_need_their_files() -> None:
    rng = np.random.default_rng(6)
    rows = []
    for side in range(2):
        whole = scores(rng.normal(0.5, 0.2, 60) + rng.normal(0, 0.05, (3, 60)))
        kept, given = [], []
        for seed, score in enumerate(whole):
            kept.append({i: one for i, one in (score.examples or {}).items() if i != str(3 * side + seed)})
            value = float(np.mean([value for value, _ in kept[-1].values()]))
            given.append(dataclasses.replace(score, value=value, n=59, examples=kept[-1]))
        summary = summarise(given)
        assert (summary.ci95_of, summary.units) == ("seeds", 59)
        rows.append([Series.of(summary, [0, 1, 2], examples) for examples in (kept, None)])
    for a, b in zip(*rows, strict=True):
        assert "not available for the same examples" in str(compare_rows([a], [b]))


def test_equal_values_are_of_examples_too() -> None:
    summary = summarise(scores(np.ones((3, 20))))
    assert (summary.ci95_of, summary.units) == (None, 20)
    assert Series.of(summary, [0, 1, 2], None).of_examples
    corpus = summarise(scores(np.ones((3, 20)), examples=False))
    assert corpus.units is None
    assert not Series.of(corpus, [0, 1, 2], None).of_examples
