"""Items of unequal weight have fewer degrees of freedom in the verdict's own test, of boards and of result files."""

from __future__ import annotations

import numpy as np
import pytest
from made_scores import score, series

from emobench.leaderboard.stats.difference import compare_rows
from emobench.leaderboard.stats.random_effects import crossed, unpaired

ITEMS = 40


def pseudo(value_I: np.ndarray, weight_I: np.ndarray) -> np.ndarray:
    """Return the jackknife's pseudo-values of a weighted mean, with it as their mean: by leaving each item out."""
    mean = np.average(value_I, weights=weight_I)
    kept = ~np.eye(len(value_I), dtype=bool)
    without_I = np.array([np.average(value_I[k], weights=weight_I[k]) for k in kept])
    pseudo_I = len(value_I) * mean - (len(value_I) - 1) * without_I
    return pseudo_I - pseudo_I.mean() + mean


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (S, I) values of two sides, and weights of which few have most."""
    rng = np.random.default_rng(seed)
    weight_I = rng.lognormal(0, 1.3, ITEMS)
    common_I = rng.normal(0, 1, ITEMS)
    sides = [common_I + rng.normal(0, 0.5, ITEMS) + rng.normal(0, 0.3, (3, ITEMS)) for _ in range(2)]
    return sides[0], sides[1], weight_I


def freedom(weight_I: np.ndarray) -> float:
    return float(weight_I.sum() ** 2 / np.square(weight_I).sum() - 1)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("paired", [True, False])
def test_a_verdict_of_a_board(seed: int, paired: bool) -> None:
    a_SI, b_SI, weight_I = drawn(seed)
    found = compare_rows(
        [series([score(value_I, weight_I) for value_I in a_SI])],
        [series([score(value_I, weight_I) for value_I in b_SI], [0, 1, 2] if paired else [5, 6, 7])],
    )
    left_SI, right_SI = (np.stack([pseudo(value_I, weight_I) for value_I in of]) for of in (a_SI, b_SI))
    units = freedom(weight_I) + 1
    assert units < ITEMS / 2
    if paired:
        expected, plain = crossed(left_SI - right_SI, effective=[units]), crossed(left_SI - right_SI)
    else:
        expected, plain = unpaired((left_SI, right_SI), effective=[units]), unpaired((left_SI, right_SI))
    assert expected.parts[1][1] == pytest.approx(freedom(weight_I))
    assert plain.parts[1][1] == ITEMS - 1
    effect = float(left_SI.mean() - right_SI.mean())
    assert found.effect == pytest.approx(effect)
    assert found.p == pytest.approx(expected.p_value(effect), rel=1e-6)
    assert found.ci95 == pytest.approx(expected.interval(effect))
    assert expected.critical() > plain.critical()


@pytest.mark.parametrize("place", range(6))
def test_the_seed_with_the_fewest_equal_items_counts(place: int) -> None:
    """One of six runs has its weight on few items, as of texts that a model ended early."""
    rng = np.random.default_rng(5)
    values_RI = rng.normal(0, 1, ITEMS) + rng.normal(0, 0.5, (6, ITEMS))
    heavy_I = np.where(np.arange(ITEMS) < 4, 30.0, 1.0)
    weights = [heavy_I if run == place else np.ones(ITEMS) for run in range(6)]
    made = [score(*pair) for pair in zip(values_RI, weights, strict=True)]
    found = compare_rows([series(made[:3])], [series(made[3:])])
    pseudo_RI = [pseudo(*pair) for pair in zip(values_RI, weights, strict=True)]
    delta_SI = np.stack(pseudo_RI[:3]) - np.stack(pseudo_RI[3:])
    expected = crossed(delta_SI, effective=[freedom(heavy_I) + 1])
    assert expected.parts[1][1] < 10
    assert found.detectable == pytest.approx(expected.detectable)
    assert found.p == pytest.approx(expected.p_value(float(delta_SI.mean())), rel=1e-6)


def test_a_mean_over_tasks_has_those_of_each() -> None:
    rng = np.random.default_rng(4)
    tasks = [rng.normal(0, 1, items) + rng.normal(0, 1, (3, items)) for items in (20, 30)]
    found = crossed(*tasks, effective=[7.5, 12.0])
    assert [df for _, df in found.parts] == [2, 6.5, 11.0]
    found = unpaired(*((task, -task[::-1]) for task in tasks), effective=[7.5, 12.0])
    assert [df for _, df in found.parts[1:]] == [6.5, 11.0]
