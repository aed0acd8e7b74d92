"""The parts of the noise are those that simulations were made of, and those of textbook sums for a table of 8 values.

Legend: S training seeds, R sampling runs, K k-means seeds, I texts.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from emobench.core.errors import MetricError
from emobench.leaderboard.stats.summary import components, summarise
from emobench.tasks.scores import Score

SDS = {"training seed": 0.5, "sampling": 0.8, "k-means": 0.6, "texts": 1.2}


def scores(values_SRK: np.ndarray, texts_SI: np.ndarray | None = None, **changes: Any) -> list[Score]:
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
    return components(scores(values_SRK), linearised_SI)


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
    found = components(scores(values_SRK), texts_SI)
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
    found = components(scores(values_SRK), None)
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
        return list(components(scores(rng.normal(0, 1, shape)), texts))

    assert names(3, 5, 5, texts=texts_SI) == ["training seed", "sampling", "k-means", "texts"]
    assert names(3, 5, 5) == ["training seed", "sampling", "k-means"]
    assert names(3, 5, 1, texts=texts_SI) == ["training seed", "sampling", "texts"]
    assert names(3, 1, 5, texts=texts_SI) == ["k-means"]
    assert names(1, 5, 5, texts=texts_SI[:1]) == ["sampling", "k-means", "texts"]
    assert names(3, 1, 1, texts=texts_SI) == []
    assert components([replace(s, repeats=()) for s in scores(rng.normal(0, 1, (3, 2, 2)))], texts_SI) == {}


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
        for score, row in zip(scores(np.exp(logs_SRK), **common), nats_SI, strict=True)
    ]
    summary = summarise(made)
    want = components(scores(logs_SRK), nats_SI)
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
    biased = summarise(scores(values_SRK, texts_SI + 3.0))
    assert biased.ci95 == pytest.approx(summarise(scores(values_SRK, texts_SI)).ci95, rel=1e-12)
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
    first, other = scores(np.array([[[0.1, 0.2], [0.3, 0.4]]] * 2))
    with pytest.raises(MetricError, match=told):
        summarise([first, replace(other, repeats=second)])


@pytest.mark.parametrize("lowest", [0.0, -1.0, math.inf])
def test_a_repeated_perplexity_is_above_0_and_finite(lowest: float) -> None:
    values_SRK = np.full((2, 3, 1), 20.0) + np.arange(3)[:, None]
    assert components(scores(values_SRK, unit="perplexity"), None)
    values_SRK[1, 2, 0] = lowest
    with pytest.raises(MetricError, match="not above 0"):
        components(scores(values_SRK, unit="perplexity"), None)
    values_SRK[1, 2, 0] = 0.5
    assert components(scores(values_SRK, unit="perplexity"), None)
