"""Poly keeps the contract, and is the series of its paper."""

import math

import emobench
import pytest
import torch
from emobench.testing import plugin_checks

from emobench_poly import Poly


@pytest.mark.parametrize("check", plugin_checks(Poly(epsilon=1.0)), ids=str)
def test_contract(check):
    check()


def losses(objective, *probabilities):
    log_prob = torch.tensor(probabilities, dtype=torch.float64).log()
    return objective.loss(emobench.TokenStatistics({"log_prob": log_prob}, torch.zeros(len(probabilities)))).tolist()


@pytest.mark.parametrize("epsilon", [-1.0, 0.0, 2.0])
def test_it_is_the_series_with_another_first_coefficient(epsilon):
    for q, found in zip((0.2, 0.5, 0.9), losses(Poly(epsilon=epsilon), 0.2, 0.5, 0.9), strict=True):
        series = (1 + epsilon) * (1 - q) + sum((1 - q) ** j / j for j in range(2, 400))
        assert found == pytest.approx(series)


def test_epsilon_0_is_maximum_likelihood():
    assert losses(Poly(epsilon=0), 0.25) == pytest.approx([math.log(4)])
