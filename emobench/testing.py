"""The conformance kit: checks that an objective keeps the contract, to be called from its own tests.

from emobench.testing import check_objective

def test_my_loss():
    check_objective(MyLoss())
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from emobench.errors import PluginError
from emobench.objectives import (
    IGNORED,
    CostEmbedding,
    ModelObjective,
    Objective,
    StatisticsObjective,
    objective_loss,
)

TOLERANCE = 1e-9
"""Relative, in float64: the engine and the reference compute the same function."""


def check_objective(
    objective: Objective,
    *,
    tokens: int = 37,
    width: int = 16,
    vocabulary: int = 29,
    seed: int = 0,
    side: Mapping[str, Tensor] | None = None,
) -> None:
    """Raise PluginError, with what was found, unless an objective keeps the contract on random inputs.

    The loss is one number per token, finite, and free of its neighbours; the chunked engine gives the reference's
    losses and gradients; and a batch without targets has loss 0 and gradients of 0. `side` gives the side data that
    the objective reads, (tokens, ...) each; zeros where it is not given.
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
    given = {name: torch.zeros(tokens, dtype=torch.float64) for name in objective.side_names} | dict(side or {})

    def run(impl: str, labels_N: Tensor = labels_N, chunk_bytes: int | None = None) -> dict[str, Tensor]:
        hidden, weight = hidden_ND.clone().requires_grad_(), weight_VD.clone().requires_grad_()
        result = objective_loss(
            objective, hidden, weight, None, labels_N, side=given, impl=impl, chunk_bytes=chunk_bytes
        )
        result.total.backward()
        assert hidden.grad is not None
        assert weight.grad is not None
        return {
            "loss": result.losses_N,
            "gradient of the hidden states": hidden.grad,
            "gradient of the head": weight.grad,
        }

    # The chunked engine first: its errors speak of the objective.
    whole = run("chunked")
    _require(bool(torch.isfinite(whole["loss"]).all()), objective, "its loss is not finite on random logits")
    reference = run("reference")
    # Two rows a chunk: a loss that looks at other tokens of its chunk gives itself away.
    small = run("chunked", chunk_bytes=4 * vocabulary * 2)
    for name, found in (("the chunked engine", whole), ("the chunked engine with chunks of two rows", small)):
        for what, value in found.items():
            error = float((value - reference[what]).norm() / reference[what].norm().clamp_min(1e-300))
            _require(error < TOLERANCE, objective, f"{name} and the reference differ in the {what} by {error:.1e}")
    empty = run("chunked", torch.full_like(labels_N, IGNORED))
    _require(not any(v.any() for v in empty.values()), objective, "a batch without targets has a loss or gradients")


def _require(holds: bool, objective: Objective, found: str) -> None:
    if not holds:
        raise PluginError(f"{objective.name} does not keep the contract: {found}.")
