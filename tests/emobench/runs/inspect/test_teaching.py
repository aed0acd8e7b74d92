"""What objectives teach, against closed forms: weights of targets and implied targets, on random predictions.

Legend: N predictions, V vocabulary, D width of the cost embedding.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.core.errors import PluginError
from emobench.objectives import CostEmbedding, StatisticsObjective, TokenStatistics
from emobench.registry import load_objective
from emobench.runs.inspect.teaching import (
    LOG_ODDS,
    TEMPERATURES,
    TokenObjective,
    implied_targets,
    made_predictions,
    token_weights,
)

N, V, D = 5, 40, 8
TARGET = 7


@pytest.fixture
def embedding_VD() -> Tensor:
    return torch.randn(V, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def logits_NV() -> Tensor:
    return 2 * torch.randn(N, V, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def loaded(name: str, embedding_VD: Tensor | None = None) -> TokenObjective:
    objective = load_objective(name).objective
    assert isinstance(objective, TokenObjective)
    if embedding_VD is not None:
        assert isinstance(objective, StatisticsObjective)
        objective.use_cost(CostEmbedding(embedding_VD))
    return objective


def made_weights(objective: TokenObjective, logits_V: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the target's probabilities, the entropies and the weights of all made predictions."""
    columns = []
    for temperature in TEMPERATURES:
        log_q_NV = made_predictions(logits_V, TARGET, temperature)
        q_NV = log_q_NV.exp()
        torch.testing.assert_close(q_NV.sum(dim=1), torch.ones(len(q_NV), dtype=q_NV.dtype))
        weight_N = token_weights(objective, log_q_NV, torch.full((len(log_q_NV),), TARGET))
        columns.append((q_NV[:, TARGET], -(q_NV * log_q_NV).nan_to_num().sum(dim=1), weight_N))
    probability, entropy, weight = (torch.cat(parts) for parts in zip(*columns, strict=True))
    return probability, entropy, weight


def test_made_predictions_reach_every_probability_and_entropy(logits_NV: Tensor) -> None:
    probability, entropy, _ = made_weights(loaded("mle"), logits_NV[0])
    assert probability.min() < 1e-6
    assert probability.max() > 0.999
    assert probability.unique().numel() <= 2 * len(LOG_ODDS)  # the same for each temperature, but for rounding
    unlikely = probability < 1e-3
    assert entropy[unlikely].min() < 0.7
    assert entropy[unlikely].max() > 0.9 * math.log(V - 1)


def test_mle_has_weight_one_and_the_one_hot_target(logits_NV: Tensor) -> None:
    mle = loaded("mle")
    _, _, weight = made_weights(mle, logits_NV[0])
    assert weight.unique().tolist() == [1.0]
    targets_N = torch.arange(N)
    one_hot_NV = F.one_hot(targets_N, V).double()
    torch.testing.assert_close(implied_targets(mle, logits_NV, targets_N), one_hot_NV, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ["dft", "tailr(gamma=0.2)", "emo", "0.5*emo + 0.5*dft"])
def test_a_weight_is_a_function_of_the_probability(name: str, logits_NV: Tensor, embedding_VD: Tensor) -> None:
    objective = loaded(name, embedding_VD if "emo" in name else None)
    q, _, weight = made_weights(objective, logits_NV[0])
    emo = (1 - q * q.log() / (1 - q)) / 2  # 0.5 (q_t - 1) + 0.5 q_t log q_t, divided by q_t - 1
    expected = {"dft": q, "tailr(gamma=0.2)": q / (0.2 + 0.8 * q), "emo": emo, "0.5*emo + 0.5*dft": (emo + q) / 2}
    torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=1e-9)


def test_a_weight_may_depend_on_the_entropy(logits_NV: Tensor) -> None:
    q, entropy, weight = made_weights(loaded("eaft"), logits_NV[0])
    torch.testing.assert_close(weight, entropy / math.log(20), rtol=1e-9, atol=1e-12)
    same = weight[(q - 0.5).abs() < 1e-9]
    assert same.max() - same.min() > 0.4


def test_emo_gives_mass_to_the_neighbours_of_a_target(logits_NV: Tensor, embedding_VD: Tensor) -> None:
    targets_N = torch.arange(N)
    implied_NV = implied_targets(loaded("emo", embedding_VD), logits_NV, targets_N)
    torch.testing.assert_close(implied_NV.sum(dim=1), torch.ones(N, dtype=torch.float64))
    q_NV = logits_NV.softmax(dim=1)
    unit_VD = F.normalize(embedding_VD)
    cost_NV = 1 - unit_VD[:N] @ unit_VD.T
    demd_N1 = (q_NV * cost_NV).sum(dim=1, keepdim=True)
    mle_N1 = F.cross_entropy(logits_NV, targets_N, reduction="none")[:, None]
    expected_NV = q_NV * (1 + mle_N1 / demd_N1 * (demd_N1 - cost_NV)) + F.one_hot(targets_N, V)
    torch.testing.assert_close(implied_NV, expected_NV / 2, rtol=1e-5, atol=1e-8)
    others_NV = F.one_hot(targets_N, V) == 0
    near_NV = (cost_NV < demd_N1) & others_NV
    far_NV = (cost_NV > demd_N1) & others_NV
    assert (implied_NV[near_NV] > q_NV[near_NV] / 2).all()
    assert (implied_NV[far_NV] < q_NV[far_NV] / 2).all()


def test_a_loss_of_logits_is_differentiated_as_it_is(logits_NV: Tensor) -> None:
    targets_N = torch.arange(N)
    leaf_NV = logits_NV.clone().requires_grad_()
    gem = loaded("gem")
    assert not isinstance(gem, StatisticsObjective)
    gem.loss(leaf_NV, targets_N, {}).sum().backward()
    assert leaf_NV.grad is not None
    torch.testing.assert_close(implied_targets(gem, logits_NV, targets_N), logits_NV.softmax(dim=1) - leaf_NV.grad)


def test_a_loss_without_a_gradient_is_refused(logits_NV: Tensor) -> None:
    class Constant(StatisticsObjective):
        def loss(self, s: TokenStatistics) -> Tensor:
            return s.log_prob.detach()

    with pytest.raises(PluginError, match="constant"):
        token_weights(Constant(), logits_NV, torch.arange(N))
