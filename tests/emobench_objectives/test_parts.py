"""What the objectives log beside their loss, computed by hand on a model of three tokens."""

from __future__ import annotations

import math

import pytest
import torch

from emobench.errors import ConfigError
from emobench.objectives import CostEmbedding, StatisticsObjective, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.mixce import MixCE
from emobench_objectives.tailr import TaiLr

# One hidden state, logits log(0.5), log(0.3), log(0.2); target 1, then 0.
HIDDEN = torch.ones(2, 1, dtype=torch.float64)
HEAD = torch.tensor([[0.5], [0.3], [0.2]], dtype=torch.float64).log()
LABELS = torch.tensor([1, 0])
# Costs from token 1: 1 to token 0 (orthogonal), 2 to token 2 (opposite); from token 0: 1 and 1.
COST = torch.tensor([[1.0, 0.0], [0.0, 3.0], [0.0, -0.5]], dtype=torch.float64)


def parts(objective: StatisticsObjective) -> dict[str, float]:
    if "expected_cost" in objective.needs:
        objective.use_cost(CostEmbedding(COST))
    found = objective_loss(objective, HIDDEN, HEAD, None, LABELS).parts
    return {name: float(value) for name, value in found.items()}


MLE = -math.log(0.3) - math.log(0.5)


def test_emo() -> None:
    demd = (0.5 * 1 + 0.2 * 2) + (0.3 * 1 + 0.2 * 1)
    weight = -math.log(0.3) / 0.9 - math.log(0.5) / 0.5
    assert parts(Emo()) == pytest.approx(
        {"mle": MLE, "demd": demd, "weight": weight, "zero_weight_count": 0}, rel=1e-12
    )


def test_tailr() -> None:
    weights = 0.3 / (0.1 + 0.9 * 0.3) + 0.5 / (0.1 + 0.9 * 0.5)
    assert parts(TaiLr()) == pytest.approx({"mle": MLE, "weight": weights}, rel=1e-12)


def test_tailr_with_a_lower_bound() -> None:
    # At gamma = 1 the weights are 0.3 and 0.5.
    assert parts(TaiLr(gamma=1.0, min_weight=0.4)) == pytest.approx({"mle": MLE, "weight": 0.4 + 0.5}, rel=1e-12)


def test_mixce() -> None:
    assert parts(MixCE()) == pytest.approx({"mle": MLE, "weight": 0.93 + 0.95}, rel=1e-12)


def test_a_token_of_no_probability_has_a_finite_weight() -> None:
    # q_t = e^-800 is 0 in any float format; the weight's limit is 0, and MLE stays 800.
    head = torch.tensor([[0.0], [-800.0], [-900.0]])
    for objective in (TaiLr(gamma=0.1), MixCE(gamma=0.0)):
        result = objective_loss(objective, HIDDEN.float(), head, None, torch.tensor([1, -100]))
        assert float(result.parts["mle"]) == 800
        assert float(result.parts["weight"]) == 0
        assert float(result.total) == 0


@pytest.mark.parametrize("make", [lambda: TaiLr(gamma=1.5), lambda: MixCE(gamma=-0.1), lambda: TaiLr(min_weight=2.0)])
def test_parameters_have_ranges(make: object) -> None:
    with pytest.raises(ConfigError, match=r"expected a number of at least 0\.0 and at most 1\.0"):
        make()  # type: ignore[operator]
