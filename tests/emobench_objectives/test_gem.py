"""GEM against its authors' formula, written in float64 as `gem_loss` of liziniu/GEM writes it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.core.errors import ConfigError
from emobench.objectives import objective_loss
from emobench_objectives.gem import Gem

N, V, D = 31, 19, 6


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


HIDDEN_ND, HEAD_VD = draw(0, N, D), draw(1, V, D)
TARGETS_N = torch.randint(V, (N,), generator=torch.Generator().manual_seed(2))


def official(logits_NV: Tensor, targets_N: Tensor, beta: float, h: str) -> Tensor:
    """Return the loss of each token; the official code takes its mean."""
    with torch.no_grad():
        difference_NV = logits_NV - logits_NV.gather(-1, targets_N[:, None])
        weight_NV = torch.ones_like(difference_NV) if h == "linear" else torch.sigmoid(0.01 * difference_NV)
        sharp_NV = F.log_softmax(logits_NV / beta, dim=-1).exp()
    log_q_NV = F.log_softmax(logits_NV, dim=-1)
    return -(sharp_NV * weight_NV * (log_q_NV.gather(-1, targets_N[:, None]) - log_q_NV)).sum(-1)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("h", ["linear", "logsigmoid"])
@pytest.mark.parametrize("beta", [1.0, 0.7, 0.1])
def test_gem_is_the_official_formula(impl: str, h: str, beta: float) -> None:
    hidden_ND, head_VD = HIDDEN_ND.clone().requires_grad_(), HEAD_VD.clone().requires_grad_()
    expected_N = official(hidden_ND @ head_VD.T, TARGETS_N, beta, h)
    expected = (expected_N.detach(), *torch.autograd.grad(expected_N.sum(), (hidden_ND, head_VD)))
    result = objective_loss(Gem(beta=beta, h=h), hidden_ND, head_VD, None, TARGETS_N, impl=impl, chunk_bytes=4 * V * 5)
    found = (result.losses_N, *torch.autograd.grad(result.total, (hidden_ND, head_VD)))
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("beta", [1.0, 0.7])
def test_linear_gem_has_the_gradient_of_mle_with_a_sharper_model(beta: float) -> None:
    logits_NV = draw(3, N, V).requires_grad_()
    (found,) = torch.autograd.grad(Gem(beta=beta).loss(logits_NV, TARGETS_N, {}).sum(), logits_NV)
    expected = (logits_NV.detach() / beta).softmax(-1) - F.one_hot(TARGETS_N, V)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("h", ["linear", "logsigmoid"])
def test_masked_tokens_add_nothing(h: str) -> None:
    logits_NV = draw(4, N, V)
    masked_NV = torch.cat([logits_NV, torch.full((N, 2), -torch.inf)], dim=1).requires_grad_()
    loss_N = Gem(h=h).loss(masked_NV, TARGETS_N, {})
    torch.testing.assert_close(loss_N, Gem(h=h).loss(logits_NV, TARGETS_N, {}))
    (gradient_NV,) = torch.autograd.grad(loss_N.sum(), masked_NV)
    assert bool((gradient_NV[:, V:] == 0).all())
    assert bool(torch.isfinite(gradient_NV).all())


def test_parameters_have_ranges() -> None:
    with pytest.raises(ConfigError, match="beta"):
        Gem(beta=0.0)
    with pytest.raises(ConfigError, match="expected one of linear, logsigmoid"):
        Gem(h="tanh")
