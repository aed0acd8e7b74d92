"""DEMD alone and against dense targets: the paper's equations in float64, with the cost matrix written out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from emobench.objectives import CostEmbedding, TokenStatistics, objective_loss
from emobench_objectives.demd import Demd
from emobench_objectives.demd_dense import DemdDense

N, V, D = 40, 23, 8
engines = pytest.mark.parametrize("impl", ["reference", "chunked"])


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


HIDDEN_ND, HEAD_VD, EMBEDDING_VE = draw(0, N, D), draw(1, V, D), draw(2, V, 5)
TARGETS_N = torch.randint(V, (N,), generator=torch.Generator().manual_seed(3))


def cost_matrix(embedding_VE: Tensor = EMBEDDING_VE) -> Tensor:
    """Return C(v, w) = 1 - cos(e_v, e_w), (V, V), with zeros on the diagonal."""
    unit_VE = embedding_VE / embedding_VE.norm(dim=1, keepdim=True)
    return (1 - unit_VE @ unit_VE.T).fill_diagonal_(0)


def ours(objective: Any, impl: str, **given: Any) -> tuple[Tensor, Tensor, Tensor]:
    objective.use_cost(CostEmbedding(EMBEDDING_VE))
    hidden_ND, head_VD = HIDDEN_ND.clone().requires_grad_(), HEAD_VD.clone().requires_grad_()
    result = objective_loss(objective, hidden_ND, head_VD, None, TARGETS_N, impl=impl, chunk_bytes=4 * V * 9, **given)
    return (result.losses_N, *torch.autograd.grad(result.total, (hidden_ND, head_VD)))


def theirs(formula: Any) -> tuple[Tensor, Tensor, Tensor]:
    hidden_ND, head_VD = HIDDEN_ND.clone().requires_grad_(), HEAD_VD.clone().requires_grad_()
    loss_N = formula((hidden_ND @ head_VD.T).softmax(-1))
    return (loss_N.detach(), *torch.autograd.grad(loss_N.sum(), (hidden_ND, head_VD)))


@engines
def test_demd_is_equation_14(impl: str) -> None:
    expected = theirs(lambda q_NV: (q_NV * cost_matrix()[TARGETS_N]).sum(-1))
    torch.testing.assert_close(ours(Demd(), impl), expected, rtol=1e-11, atol=1e-13)


def test_the_slopes_of_demd_are_those_of_autograd() -> None:
    cost_N = torch.rand(7, dtype=torch.float64, requires_grad=True)
    s = TokenStatistics({"log_prob": -cost_N.detach(), "expected_cost": cost_N}, TARGETS_N[:7])
    (expected,) = torch.autograd.grad(Demd().loss(s).sum(), cost_N)
    slopes = Demd().slopes(s)
    assert slopes.keys() == {"expected_cost"}
    assert torch.equal(slopes["expected_cost"], expected)


@engines
def test_generalised_demd_is_equation_15(impl: str) -> None:
    logits_p_NV = draw(4, N, V)
    p_NV = logits_p_NV.softmax(-1)
    expected = theirs(lambda q_NV: torch.einsum("nv,vw,nw->n", (q_NV - p_NV).abs(), cost_matrix(), p_NV))
    found = ours(DemdDense(), impl, side={"dense_target": logits_p_NV})
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@engines
def test_for_a_one_hot_target_equation_15_is_equation_14(impl: str) -> None:
    one_hot_NV = torch.full((N, V), -torch.inf, dtype=torch.float64).scatter_(1, TARGETS_N[:, None], 0.0)
    found = ours(DemdDense(), impl, side={"dense_target": one_hot_NV})
    torch.testing.assert_close(found, ours(Demd(), impl), rtol=1e-10, atol=1e-12)


def test_generalised_demd_is_zero_where_q_is_p_and_equation_14_is_not() -> None:
    objective = DemdDense()
    objective.use_cost(CostEmbedding(EMBEDDING_VE))
    logits_NV = draw(5, N, V)
    assert float(objective.loss(logits_NV, TARGETS_N, {"dense_target": logits_NV}).abs().max()) == 0
    p_NV = logits_NV.softmax(-1)
    assert float(torch.einsum("nv,vw,nw->n", p_NV, cost_matrix(), p_NV).min()) > 0.1


def test_rows_of_the_cost_embedding_behind_the_vocabulary_are_padding() -> None:
    objective = DemdDense()
    objective.use_cost(CostEmbedding(torch.cat([EMBEDDING_VE, draw(6, 3, 5)])))
    found_N = objective.loss(draw(7, N, V), TARGETS_N, {"dense_target": draw(8, N, V)})
    objective.use_cost(CostEmbedding(EMBEDDING_VE))
    torch.testing.assert_close(found_N, objective.loss(draw(7, N, V), TARGETS_N, {"dense_target": draw(8, N, V)}))
