"""The conformance kit: checks that an objective keeps the contract, to be called from its own tests.

from emobench.testing import check_objective

def test_my_loss():
    check_objective(MyLoss())
"""

from __future__ import annotations

import torch
from torch import Tensor

from emobench.errors import PluginError
from emobench.objectives import (
    IGNORED,
    CostEmbedding,
    LossResult,
    ModelObjective,
    Objective,
    StatisticsObjective,
    objective_loss,
)

TOLERANCE = 1e-9
"""Relative, in float64: the engine and the reference compute the same function."""


def check_objective(
    objective: Objective, *, tokens: int = 37, width: int = 16, vocabulary: int = 29, seed: int = 0
) -> None:
    """Raise PluginError, with what was found, unless an objective keeps the contract on random inputs.

    The loss is one number per token, finite, and free of its neighbours; the chunked engine gives the reference's loss
    and gradients; labels of -100 cost nothing; and a batch without targets has loss 0 and gradients of 0.
    """
    if isinstance(objective, ModelObjective):
        raise PluginError(
            f"{objective.name} is a ModelObjective: it has no loss of tokens to check; test it with a model."
        )
    generator = torch.Generator().manual_seed(seed)
    hidden_ND = torch.randn(tokens, width, generator=generator, dtype=torch.float64)
    weight_VD = torch.randn(vocabulary, width, generator=generator, dtype=torch.float64)
    labels_N = torch.randint(vocabulary, (tokens,), generator=generator)
    labels_N[::5] = IGNORED
    if isinstance(objective, StatisticsObjective) and "expected_cost" in objective.needs:
        objective.use_cost(CostEmbedding(weight_VD))

    reference = _run(objective, hidden_ND, weight_VD, labels_N, "reference")
    _require(bool(torch.isfinite(reference[0].losses_N).all()), objective, "its loss is not finite on random logits")
    whole = _run(objective, hidden_ND, weight_VD, labels_N, "chunked")
    # Two rows a chunk: a loss that looks at other tokens of its chunk gives itself away.
    small = _run(objective, hidden_ND, weight_VD, labels_N, "chunked", chunk_bytes=4 * vocabulary * 2)
    for name, found in (("the chunked engine", whole), ("the chunked engine with chunks of two rows", small)):
        for what, a, b in zip(
            ("loss", "gradient of the hidden states", "gradient of the head"), found[1:], reference[1:], strict=True
        ):
            error = float((a - b).norm() / b.norm().clamp_min(1e-300))
            _require(error < TOLERANCE, objective, f"{name} and the reference differ in the {what} by {error:.1e}")
    _require(bool((whole[0].losses_N[labels_N == IGNORED] == 0).all()), objective, "tokens with label -100 have a loss")
    empty = _run(objective, hidden_ND, weight_VD, torch.full_like(labels_N, IGNORED), "chunked")
    _require(
        all(float(t.abs().sum()) == 0 for t in empty[1:]), objective, "a batch without targets has a loss or gradients"
    )


def _run(
    objective: Objective,
    hidden_ND: Tensor,
    weight_VD: Tensor,
    labels_N: Tensor,
    impl: str,
    chunk_bytes: int | None = None,
) -> tuple[LossResult, Tensor, Tensor, Tensor]:
    hidden, weight = hidden_ND.clone().requires_grad_(), weight_VD.clone().requires_grad_()
    side = {name: torch.zeros(len(labels_N), dtype=torch.float64) for name in objective.side_names}
    result = objective_loss(objective, hidden, weight, None, labels_N, side=side, impl=impl, chunk_bytes=chunk_bytes)
    result.total.backward()
    assert hidden.grad is not None
    assert weight.grad is not None
    return result, result.total.detach(), hidden.grad, weight.grad


def _require(holds: bool, objective: Objective, found: str) -> None:
    if not holds:
        raise PluginError(f"{objective.name} does not keep the contract: {found}.")
