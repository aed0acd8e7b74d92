"""Means over texts: values, examples and runs follow from one another; what has no weight is nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from emobench.errors import MetricError
from emobench.metrics.by_prompt import mean_by_prompt


def test_values_weights_examples_and_runs_agree() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(3, 5)), rng.integers(1, 4, size=(3, 5))
    weights[1, 0] = 0
    weights[:, 2] = 0
    values[:, 2] = np.nan
    found = mean_by_prompt(values, list("abcde"), weights_RN=weights)
    assert found.examples is not None
    assert set(found.examples) == set("abde")
    expected = np.average(np.delete(values, 2, 1), weights=np.delete(weights, 2, 1))
    assert found.value == pytest.approx(expected)
    means, sums = zip(*found.examples.values(), strict=True)
    assert found.value == pytest.approx(np.average(means, weights=sums))
    for run in range(3):
        by_run = np.average(np.delete(values[run], 2), weights=np.delete(weights[run], 2))
        assert found.repeats[run] == (pytest.approx(by_run),)


@pytest.mark.parametrize("empty", [[0], [2], [0, 1, 2]])
def test_a_run_that_weighs_nothing_is_an_error(empty: list[int]) -> None:
    weights = np.ones((3, 5))
    weights[empty] = 0
    with pytest.raises(MetricError, match="No generated text of a sampling run can be measured"):
        mean_by_prompt(np.ones((3, 5)), list("abcde"), weights_RN=weights)
