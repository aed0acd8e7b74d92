"""What the objectives log beside their loss, computed by hand on a model of three tokens."""

from __future__ import annotations

import math

import pytest
import torch

from emobench.core.errors import ConfigError
from emobench.objectives import CostEmbedding, StatisticsObjective, TokenStatistics, objective_loss
from emobench_objectives.brier import Brier
from emobench_objectives.dft import Dft
from emobench_objectives.emo import Emo
from emobench_objectives.emo_official import Emo1Adaptive, Emo2Adaptive, Emo2Fixed, EmoClamped
from emobench_objectives.entropy_regularization import EntropyRegularization
from emobench_objectives.focal import Focal
from emobench_objectives.label_smoothing import LabelSmoothing
from emobench_objectives.mixce import MixCE
from emobench_objectives.power import Power
from emobench_objectives.tailr import TaiLr, TaiLrOfficial
from emobench_objectives.total_variation import TotalVariation
from emobench_objectives.z_loss import ZLoss

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


def test_tailr_official() -> None:
    # At gamma = 0.5 the ratio is q / (0.5 + 0.5 q); at gamma = 0 it is q, and 0.01 lies below the bound.
    weights = 1 + 0.5 * (0.3 / 0.65 + 0.5 / 0.75)
    assert parts(TaiLrOfficial(gamma=0.5)) == pytest.approx({"mle": MLE, "weight": weights}, rel=1e-12)
    s = TokenStatistics({"log_prob": torch.tensor([0.01]).log()}, torch.tensor([0]))
    assert float(TaiLrOfficial(gamma=0.0).parts(s)["weight"]) == pytest.approx(0.2)


def test_emo_clamped() -> None:
    # The ratios are 1.338 and 1.386.
    expected = {"mle": MLE, "demd": 1.4, "weight": -math.log(0.3) / 0.9 + 1.35, "zero_weight_count": 0}
    assert parts(EmoClamped(max_ratio=1.35)) == pytest.approx(expected, rel=1e-12)


def test_emo_2_fixed() -> None:
    weight = -0.9 / math.log(0.3) - 0.5 / math.log(0.5)
    expected = {"mle": MLE, "demd": 1.4, "weight": weight, "zero_weight_count": 0}
    assert parts(Emo2Fixed()) == pytest.approx(expected, rel=1e-12)


def test_the_adaptive_forms_count_the_targets_own_mass() -> None:
    # Straight from statistics: q_t 0.3 and 0.5, DEMD 0.9 and 0.5, so that u' is 1.2 and 1.0.
    values = {"log_prob": torch.tensor([0.3, 0.5]).log(), "expected_cost": torch.tensor([0.9, 0.5])}
    s = TokenStatistics(values, LABELS)
    ratio = torch.tensor([-math.log(0.3) / 1.2, -math.log(0.5)])
    for objective, weight in ((Emo1Adaptive(), ratio), (Emo2Adaptive(), 1 / ratio)):
        found = objective.parts(s)
        assert found.keys() == {"demd", "weight", "zero_weight_count"}
        torch.testing.assert_close(found["demd"], values["expected_cost"])
        torch.testing.assert_close(found["weight"], weight)
        assert found["zero_weight_count"].tolist() == [0, 0]


def test_ratios_without_a_value_are_counted() -> None:
    # A sure token, one whose whole mass lies on a duplicate of the target, and an ordinary one.
    values = {"log_prob": torch.tensor([0.0, -200.0, -1.0]), "expected_cost": torch.tensor([0.0, 0.0, 0.5])}
    s = TokenStatistics(values, torch.zeros(3, dtype=torch.long))
    expected = {
        Emo: [0, 0, 2],
        EmoClamped: [0, 0, 2],
        Emo1Adaptive: [0, 0, 1 / (0.5 + math.exp(-1))],
        Emo2Fixed: [0, 0, 0.5],
        Emo2Adaptive: [0, 0, 0.5 + math.exp(-1)],
    }
    for cls, weights in expected.items():
        found = cls().parts(s)
        assert found["weight"].tolist() == pytest.approx(weights), cls.name
        assert found["zero_weight_count"].tolist() == [1, 1, 0], cls.name


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (Dft(), {"weight": 0.8}),
        (Focal(), {"weight": 0.7**2 + 0.5**2}),
        (TotalVariation(), {"weight": 0.8}),
        (Power(alpha=2.0), {"weight": 0.09 + 0.25, "outside_count": 0}),
        (Power(alpha=2.0, min_prob=0.4), {"weight": 0.25, "outside_count": 1}),
        (Brier(), {"target_prob": 0.8, "sum_squares": 2 * (0.25 + 0.09 + 0.04)}),
        (LabelSmoothing(), {"uniform_cross_entropy": -2 / 3 * math.log(0.5 * 0.3 * 0.2)}),
        (EntropyRegularization(), {"entropy": -2 * sum(q * math.log(q) for q in (0.5, 0.3, 0.2))}),
        # The logits are log-probabilities: Z is 1.
        (ZLoss(), {"log_partition": 0, "z_loss": 0}),
    ],
    ids=repr,
)
def test_the_other_objectives(objective: StatisticsObjective, expected: dict[str, float]) -> None:
    assert parts(objective) == pytest.approx({"mle": MLE, **expected}, rel=1e-12, abs=1e-12)


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
    with pytest.raises(ConfigError, match=r"expected at least 0\.0, at most 1\.0"):
        make()  # type: ignore[operator]
