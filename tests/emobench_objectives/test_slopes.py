"""The closed-form slopes of every installed objective against autograd, on statistics that no model need have.

The loss is a function of the statistics, so that they are drawn independently; the first rows are the hard ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from emobench.objectives import STATISTICS, StatisticsObjective, TokenStatistics
from emobench.registry import OBJECTIVES, objective_names
from emobench.testing.subject import ExampleContext

FAMILY = {
    "brier",
    "dft",
    "eaft",
    "emo",
    "emo-1-adaptive",
    "emo-2-adaptive",
    "emo-2-fixed",
    "emo-clamped",
    "entropy-regularization",
    "focal",
    "label-smoothing",
    "mixce",
    "mle",
    "ntl",
    "power",
    "profit",
    "tailr",
    "tailr-official",
    "total-variation",
    "z-loss",
}


def with_slopes() -> dict[str, type[StatisticsObjective]]:
    """Return the installed objectives that give slopes; one that reads side data is its own test's business."""
    found = {name: OBJECTIVES.class_of(name) for name in objective_names()}
    return {
        name: cls
        for name, cls in found.items()
        if issubclass(cls, StatisticsObjective)
        and cls.slopes is not StatisticsObjective.slopes
        and cls.needs <= set(STATISTICS)
    }


def settings(cls: type[StatisticsObjective]) -> Iterator[dict[str, Any]]:
    """Yield no parameters, and then each number alone at the ends of its range and at two values between."""
    yield {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if isinstance(field.default, float):
            low, high = field.metadata["low"], field.metadata["high"]
            low, high = (0.0 if low is None else low), (5.0 if high is None else high)
            for share in (0.0, 0.1, 0.6, 1.0):
                yield {field.name: low + share * (high - low)}


def ready(cls: type[StatisticsObjective], given: dict[str, Any]) -> StatisticsObjective:
    objective = cls(**given)
    objective.setup(ExampleContext(torch.eye(4)))
    return objective


OBJECTS = [ready(cls, given) for cls in with_slopes().values() for given in settings(cls)]
CASES = [pytest.param(objective, id=repr(objective)) for objective in OBJECTS]
LOG_PROBS = [0.0, -1e-300, -1e-12, -1e-7, -0.5, -3.0, -80.0, -800.0]


def statistics(objective: StatisticsObjective, seed: int, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Return the statistics that an objective needs: each of LOG_PROBS at four DEMDs, then 40 random rows."""
    rng = torch.Generator().manual_seed(seed)
    costs = [0.0, 1e-300, 1e-9, 1.3]
    grid = torch.cartesian_prod(torch.tensor(LOG_PROBS, dtype=torch.float64), torch.tensor(costs, dtype=torch.float64))
    random = torch.rand(40, 2, generator=rng, dtype=torch.float64)
    log_prob = torch.cat([grid[:, 0], random[:, 0].log()])
    n = len(log_prob)
    drawn = torch.rand(n, 4, generator=rng, dtype=torch.float64)
    values = {
        "log_prob": log_prob,
        "expected_cost": torch.cat([grid[:, 1], 2 * random[:, 1]]),
        "entropy": 9 * drawn[:, 0],
        "log_partition": 200 * drawn[:, 1] - 100,
        "mean_log_prob": -30 * drawn[:, 2],
        "sum_squares": drawn[:, 3],
    }
    return {name: values[name].to(dtype) for name in sorted(objective.statistic_names)}


def by_autograd(objective: StatisticsObjective, values: dict[str, Tensor]) -> dict[str, Tensor]:
    leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
    n = len(leaves["log_prob"])
    loss_N = objective.loss(TokenStatistics(leaves, torch.zeros(n, dtype=torch.long)))
    found = torch.autograd.grad(loss_N.sum(), list(leaves.values()), allow_unused=True)
    return {name: grad for name, grad in zip(leaves, found, strict=True) if grad is not None}


def closed_form(objective: StatisticsObjective, values: dict[str, Tensor]) -> dict[str, Tensor]:
    slopes = objective.slopes(TokenStatistics(values, torch.zeros(len(values["log_prob"]), dtype=torch.long)))
    assert slopes is not None
    return dict(slopes)


def test_the_whole_family_gives_slopes() -> None:
    assert with_slopes().keys() >= FAMILY


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("objective", CASES)
def test_slopes_are_those_of_autograd(objective: StatisticsObjective, seed: int) -> None:
    values = statistics(objective, seed)
    expected, found = by_autograd(objective, values), closed_form(objective, values)
    assert found.keys() == expected.keys()
    for name, slope_N in found.items():
        # Autograd of expm1 is expm1 + 1, which has lost e^-80.
        torch.testing.assert_close(slope_N, expected[name], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("objective", CASES)
def test_slopes_and_losses_are_finite_in_single_precision(objective: StatisticsObjective) -> None:
    # 1e-300 is 0 in float32, so that rows with DEMD 0 and a hopeless target, and with MLE 0 and a cost, are among them.
    values = statistics(objective, 0, torch.float32)
    s = TokenStatistics(values, torch.zeros(len(values["log_prob"]), dtype=torch.long))
    assert torch.isfinite(objective.loss(s)).all()
    for name, slope_N in closed_form(objective, values).items():
        assert slope_N.dtype == torch.float32
        assert slope_N.shape == values["log_prob"].shape
        assert torch.isfinite(slope_N).all(), name
    for name, part_N in objective.parts(s).items():
        assert torch.isfinite(part_N).all(), name
