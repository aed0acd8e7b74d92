"""The summary of a metric over seeds: its interval agrees with independent references, and says what it covers."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from made_scores import scores
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from emobench.core.errors import MetricError
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.summary import components, summarise
from emobench.tasks.scores import Score

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


def test_equal_values_are_of_examples_too() -> None:
    summary = summarise(scores(np.ones((3, 20))))
    assert (summary.ci95_of, summary.units) == (None, 20)
    assert Series.of(summary, [0, 1, 2], None).of_examples
    corpus = summarise(scores(np.ones((3, 20)), examples=False))
    assert corpus.units is None
    assert Series.of(corpus, [0, 1, 2], None).of_examples  # 20 of them, which seeds share
    single = summarise(scores(np.ones((3, 1)), examples=False))
    assert not Series.of(single, [0, 1, 2], None).of_examples


@pytest.mark.parametrize(
    ("mean", "value", "accepted"), [(2.0, 2.0018, True), (2.0, 2.0025, False), (0.0, 9e-7, True), (0.0, 1.2e-6, False)]
)
def test_a_score_is_the_mean_of_its_examples_within_a_thousandth(mean: float, value: float, accepted: bool) -> None:
    examples = {"0": (mean - 0.5, 1.0), "1": (mean + 0.5, 1.0)}
    given = [Score(value=value, n=2, higher_is_better=True, unit="nats", examples=examples)]
    if accepted:
        assert summarise(given).mean == value
    else:
        with pytest.raises(MetricError, match="mean of its examples"):
            summarise(given)


def test_two_units_have_an_interval_and_one_has_none() -> None:
    value_I = np.array([0.2, 0.9, 0.5, 0.7])
    (score,) = scores(value_I[None])
    two = summarise([dataclasses.replace(score, units={"0": "a", "1": "a", "2": "b", "3": "b"})])
    assert two.ci95 == pytest.approx(stats.t.interval(0.95, 1, loc=0.575, scale=stats.sem([0.55, 0.6])))
    one = summarise([dataclasses.replace(score, units=dict.fromkeys("0123", "a"))])
    assert (one.ci95, one.ci95_of, one.units) == (None, None, 1)


def test_scores_whose_examples_are_not_kept_have_the_interval_of_seeds() -> None:
    values = [0.4, 0.5, 0.7]
    want = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    plain = [Score(value=v, n=9, higher_is_better=True, unit="points") for v in values]
    examples = {"0": (0.1, 1.0), "1": (0.3, 1.0)}
    corpus = [dataclasses.replace(one, examples=examples, aggregate="corpus") for one in plain]
    for given in (plain, corpus, [*plain[:2], dataclasses.replace(plain[2], examples={"0": (0.5, 1), "1": (0.9, 1)})]):
        summary = summarise(given)
        assert (summary.ci95, summary.ci95_of, summary.ci95_missing) == (pytest.approx(want), "seeds", None)
    equal = summarise([plain[0]] * 3)
    assert (equal.ci95, equal.ci95_missing) == (None, "the seeds' values are equal, so that no spread can be estimated")


def test_the_interval_of_wild_perplexities_ends_at_the_largest_number() -> None:
    common = {"n": 9, "higher_is_better": False, "unit": "perplexity", "aggregate": "exp_mean"}
    low, high = summarise([Score(value=value, **common) for value in (2.0, 1e150)]).ci95 or (0.0, 0.0)
    assert (low, high) == (0.0, pytest.approx(math.exp(709)))


def test_seeds_that_ask_other_questions_on_the_same_passages_are_no_independent_draws() -> None:
    """The spread of seeds has nothing of the passages' noise, which all seeds share."""
    rng = np.random.default_rng(8)
    passage_I = rng.normal(0, 1, 20)
    made = []
    for seed in range(3):
        value_I = np.repeat(passage_I, 2) + rng.normal(0, 0.1, 40)
        examples = {f"{seed}-{i}": (float(value), 1.0) for i, value in enumerate(value_I)}
        units = {f"{seed}-{i}": f"passage {i // 2}" for i in range(40)}
        score = Score(value=float(value_I.mean()), n=40, higher_is_better=True, unit="nats", examples=examples)
        made.append((score, dataclasses.replace(score, units=units)))
    alone = summarise([score for score, _ in made])
    assert (alone.ci95_of, alone.ci95_missing) == ("seeds", None)
    shared = summarise([score for _, score in made])
    assert (shared.ci95, shared.ci95_of) == (None, None)
    assert "not available for the same examples" in (shared.ci95_missing or "")


# The parts of the noise are those that simulations were made of, and those of textbook sums for a table of 8 values.

SDS = {"training seed": 0.5, "sampling": 0.8, "k-means": 0.6, "texts": 1.2}


def repeated(values_SRK: np.ndarray, texts_SI: np.ndarray | None = None, **changes: Any) -> list[Score]:
    """Return a score for each seed, the mean of its repeats, with pseudo-values or without any."""
    plain = {"n": 50, "higher_is_better": True, "unit": "points", "aggregate": "corpus", **changes}
    made = [Score(value=float(v.mean()), repeats=tuple(map(tuple, v.tolist())), **plain) for v in values_SRK]
    if texts_SI is None:
        return made
    examples = [{str(i): (float(v), 1.0) for i, v in enumerate(row)} for row in texts_SI]
    return [replace(m, aggregate="jackknife", examples=e) for m, e in zip(made, examples, strict=True)]


def simulated(
    rng: np.random.Generator, seeds: int, runs: int, starts: int, *, shared: float = 0.0, items: int = 40
) -> tuple[np.ndarray, np.ndarray]:
    """Return repeats (S, R, K) and the examples behind them (S, I), with the standard deviations of `SDS`.

    The share `shared` of the sampling noise (in variance) is the same for all seeds, as with the same random numbers.
    """
    text_I = rng.normal(0, SDS["texts"] * math.sqrt(items), items)
    own_SRI = rng.normal(0, SDS["sampling"] * math.sqrt((1 - shared) * items), (seeds, runs, items))
    same_RI = rng.normal(0, SDS["sampling"] * math.sqrt(shared * items), (runs, items))
    seed_S1 = rng.normal(0, SDS["training seed"], (seeds, 1))
    values_SRI = text_I + own_SRI + same_RI + seed_S1[:, :, None]
    kmeans_SRK = rng.normal(0, SDS["k-means"], (seeds, runs, starts))
    return values_SRI.mean(2)[:, :, None] + kmeans_SRK, values_SRI.mean(1)


def found_of(values_SRK: np.ndarray, texts_SI: np.ndarray) -> dict[str, Any]:
    linearised_SI = texts_SI - texts_SI.mean(1)[:, None] + values_SRK.mean((1, 2))[:, None]
    return components(repeated(values_SRK), linearised_SI)


@pytest.mark.parametrize("shared", [0.0, 0.7])
def test_many_draws_give_the_deviations_that_a_simulation_was_made_of(shared: float) -> None:
    """60 seeds, 60 runs, 1,500 texts: each within 15 %, wherever the random numbers of sampling come from."""
    rng = np.random.default_rng([1, int(10 * shared)])
    found = found_of(*simulated(rng, 60, 60, 10, shared=shared, items=1500))
    assert {name: part.sd for name, part in found.items()} == pytest.approx(SDS, rel=0.15)
    assert {name: part.draws for name, part in found.items()} == dict(zip(SDS, (60, 60, 10, 1500), strict=True))


def test_two_by_two_by_two_by_hand() -> None:
    values_SRK = np.array([[[1.0, 3.0], [5.0, 5.0]], [[9.0, 9.0], [11.0, 15.0]]])
    texts_SI = np.array([[-6.5, 3.5, 13.5], [0.0, 12.0, 21.0]])  # with the seeds' means, 3.5 and 11
    # Within the cells: variances 2, 0, 0 and 8, of which the mean is 2.5. Runs: 2 and 5; 9 and 13; means 3.5, 11.
    kmeans = 2.5
    # Runs within seeds: variances 4.5 and 8, mean 6.25, of which half of the k-means is in a run's value.
    sampling = 6.25 - 1.25
    # Means of runs over seeds: 5.5 and 9, variance 6.125; interaction: residuals +-.25 each, 4 (.25^2) / 1 = .25.
    interaction = 4 * 0.25**2
    left = 6.125 - 1.25 / 2
    training = 7.5**2 / 2 - interaction / 2
    # Texts less the seeds' means: -10, 0, 10 and -11, 1, 10; their means -10.5, .5, 10; residuals +-.5, -+.5, 0.
    ms_items = 2 * (10.5**2 + 0.5**2 + 10**2) / 2
    ms_residual = 4 * 0.5**2 / 2
    texts = (ms_items - ms_residual) / 6 - (6.125 - interaction / 2) / 2
    found = components(repeated(values_SRK), texts_SI)
    assert found["k-means"].sd == pytest.approx(math.sqrt(kmeans))
    assert found["k-means"].sd_of_mean == pytest.approx(math.sqrt(kmeans / 8))
    assert found["sampling"].sd == pytest.approx(math.sqrt(sampling))
    assert found["sampling"].sd_of_mean == pytest.approx(math.sqrt(left / 2))
    assert found["training seed"].sd == pytest.approx(math.sqrt(training))
    assert found["training seed"].sd_of_mean == pytest.approx(math.sqrt(training / 2))
    assert found["texts"].sd == found["texts"].sd_of_mean == pytest.approx(math.sqrt(texts))
    assert [part.draws for part in found.values()] == [2, 2, 2, 3]


def test_three_seeds_by_four_runs_against_an_analysis_of_variance() -> None:
    """Mean squares of seeds, runs and residual (statsmodels), and of k-means within the cells."""
    rng = np.random.default_rng(8)
    values_SRK = simulated(rng, 3, 4, 2)[0]
    run_SR = values_SRK.mean(2)
    frame = pd.DataFrame([(s, r, run_SR[s, r]) for s in range(3) for r in range(4)], columns=list("sry"))
    seeds, runs, residual = anova_lm(ols("y ~ C(s) + C(r)", frame).fit())["mean_sq"]
    kmeans = np.mean([values_SRK[s, r].var(ddof=1) for s in range(3) for r in range(4)])
    within = (3 * runs + 3 * 2 * residual) / 9  # over runs within a seed: (3 + 6) degrees of freedom
    found = components(repeated(values_SRK), None)
    training, sampling = (seeds - residual) / 4, within - kmeans / 2
    assert found["training seed"].sd == pytest.approx(math.sqrt(max(training, 0)))
    assert found["training seed"].sd_of_mean == pytest.approx(math.sqrt(max(training, 0) / 3))
    assert found["sampling"].sd == pytest.approx(math.sqrt(sampling))
    assert found["sampling"].sd_of_mean == pytest.approx(math.sqrt((runs / 3 - kmeans / 6) / 4))
    assert found["k-means"].sd == pytest.approx(math.sqrt(kmeans))
    assert training > 0


def test_what_cannot_be_told_apart_is_absent() -> None:
    rng = np.random.default_rng(5)
    texts_SI = rng.normal(0, 1, (3, 20))

    def names(*shape: int, texts: np.ndarray | None = None) -> list[str]:
        return list(components(repeated(rng.normal(0, 1, shape)), texts))

    assert names(3, 5, 5, texts=texts_SI) == ["training seed", "sampling", "k-means", "texts"]
    assert names(3, 5, 5) == ["training seed", "sampling", "k-means"]
    assert names(3, 5, 1, texts=texts_SI) == ["training seed", "sampling", "texts"]
    assert names(3, 1, 5, texts=texts_SI) == ["k-means"]
    assert names(1, 5, 5, texts=texts_SI[:1]) == ["sampling", "k-means", "texts"]
    assert names(3, 1, 1, texts=texts_SI) == []
    assert components([replace(s, repeats=()) for s in repeated(rng.normal(0, 1, (3, 2, 2)))], texts_SI) == {}


def test_perplexities_are_on_the_log_scale() -> None:
    rng = np.random.default_rng(6)
    logs_SRK = rng.normal(4, 0.02, (3, 4, 1))
    nats_SI = rng.normal(4, 0.5, 40) + rng.normal(0, 0.01, (3, 40))
    nats_SI += logs_SRK.mean((1, 2))[:, None] - nats_SI.mean(1)[:, None]
    common = {"unit": "perplexity", "higher_is_better": False}
    made = [
        replace(
            score,
            value=float(np.exp(row.mean())),
            aggregate="exp_mean",
            examples={str(i): (float(v), 1.0) for i, v in enumerate(row)},
        )
        for score, row in zip(repeated(np.exp(logs_SRK), **common), nats_SI, strict=True)
    ]
    summary = summarise(made)
    want = components(repeated(logs_SRK), nats_SI)
    assert list(summary.components) == list(want)
    for source, found in summary.components.items():
        assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(want[source]))
    assert summary.components["texts"].sd == pytest.approx(0.5 / math.sqrt(40), rel=0.3)
    plain = summarise([replace(score, aggregate="corpus", examples=None) for score in made])
    assert list(plain.components) == ["training seed", "sampling"]


def test_pseudo_values_with_a_bias_make_an_interval_around_the_score() -> None:
    """The jackknife's mean is the score without its bias; the interval stands around the score that is reported."""
    rng = np.random.default_rng(7)
    values_SRK, texts_SI = simulated(rng, 3, 5, 5)
    biased = summarise(repeated(values_SRK, texts_SI + 3.0))
    assert biased.ci95 == pytest.approx(summarise(repeated(values_SRK, texts_SI)).ci95, rel=1e-12)
    assert biased.mean == pytest.approx(values_SRK.mean())
    assert biased.ci95_of == "seeds and items"
    low, high = biased.ci95 or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(biased.mean)
    assert list(biased.components) == list(SDS)


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (((0.1, 0.2),), "unlike one another"),
        (((0.1, 0.2), (0.3,)), "unlike one another"),
        ((), "unlike one another"),
        (((0.1, math.nan), (0.3, 0.4)), "not finite"),
    ],
)
def test_repeats_that_are_no_table(second: tuple[tuple[float, ...], ...], told: str) -> None:
    first, other = repeated(np.array([[[0.1, 0.2], [0.3, 0.4]]] * 2))
    with pytest.raises(MetricError, match=told):
        summarise([first, replace(other, repeats=second)])


@pytest.mark.parametrize("lowest", [0.0, -1.0, math.inf])
def test_a_repeated_perplexity_is_above_0_and_finite(lowest: float) -> None:
    values_SRK = np.full((2, 3, 1), 20.0) + np.arange(3)[:, None]
    assert components(repeated(values_SRK, unit="perplexity"), None)
    values_SRK[1, 2, 0] = lowest
    with pytest.raises(MetricError, match="not above 0"):
        components(repeated(values_SRK, unit="perplexity"), None)
    values_SRK[1, 2, 0] = 0.5
    assert components(repeated(values_SRK, unit="perplexity"), None)
