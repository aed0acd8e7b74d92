"""Means over texts: values, examples and runs follow from one another; what has no weight is nowhere."""

from __future__ import annotations

import numpy as np
import pytest

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt, pseudo_values
from emobench.tasks.scores import Measure

TOKENS = Measure(False, "tokens")


def test_values_weights_examples_and_runs_agree() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(3, 5)), rng.integers(1, 4, size=(3, 5))
    weights[1, 0] = 0
    weights[:, 2] = 0
    values[:, 2] = np.nan
    found = mean_by_prompt(values, list("abcde"), TOKENS, weights_RN=weights)
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
        mean_by_prompt(np.ones((3, 5)), list("abcde"), TOKENS, weights_RN=weights)


def test_an_exponential_mean_is_of_the_examples_nats() -> None:
    found = mean_by_prompt([[1.0, 2.0], [3.0, 6.0]], ["a", "b"], TOKENS, weights_RN=[[1, 3], [1, 1]], exponential=True)
    assert found.value == pytest.approx(np.exp((1 + 6 + 3 + 6) / 6))
    assert found.examples == {"a": (2.0, 2.0), "b": (3.0, 4.0)}
    assert [run for (run,) in found.repeats] == pytest.approx([np.exp(7 / 4), np.exp(9 / 2)])
    assert (found.n, found.aggregate, found.unit, found.higher_is_better) == (2, "exp_mean", "tokens", False)
    assert mean_by_prompt([[1.0]], ["a"], TOKENS).aggregate == "mean"


def test_pseudo_values_of_a_mean_are_its_values() -> None:
    values = np.array([1.0, 4.0, 2.0, 9.0])
    without = (values.sum() - values) / 3
    found = pseudo_values(values.mean(), list("abcd"), without)
    assert found == {key: (pytest.approx(value), 1.0) for key, value in zip("abcd", values, strict=True)}
    assert pseudo_values(1.0, ["a"], [np.nan]) is pseudo_values(1.0, ["a"], [1.0]) is None
    assert pseudo_values(1.0, ["a", "b"], [1.0, np.nan]) is None
    assert pseudo_values(1.0, ["a", "b"], [0.5, 1.0]) == {"a": (1.5, 1.0), "b": (1.0, 1.0)}


def test_a_corpus_metric_is_the_mean_of_its_runs_unless_it_is_given() -> None:
    found = corpus_by_run([1.0, 4.0], 7, TOKENS)
    assert (found.value, found.n, found.aggregate, found.examples) == (2.5, 7, "corpus", None)
    assert found.repeats == ((1.0,), (4.0,))
    found = corpus_by_run([1.0, 4.0], 7, TOKENS, value=2.0, ids=["a", "b"], without_N=[1.0, 4.0])
    assert (found.value, found.aggregate) == (2.0, "jackknife")
    assert found.examples == {"a": (3.0, 1.0), "b": (0.0, 1.0)}
    assert corpus_by_run([1.0], 7, TOKENS, ids=["a", "b"]).aggregate == "corpus"
    assert corpus_by_run([1.0], 7, TOKENS, without_N=[1.0, 2.0]).aggregate == "corpus"
