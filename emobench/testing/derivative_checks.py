"""Derivatives: autograd against finite differences, and closed-form slopes against autograd."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from emobench.objectives import StatisticsObjective
from emobench.testing.calls import loss_call, tolerance
from emobench.testing.modes import HeldConstants
from emobench.testing.subject import CUT_OFF, Broken, Explained, Skipped, Subject

STEPS = {torch.float64: (1e-5, 1e-5), torch.float32: (1e-2, 1e-2)}
"""Precision of the loss -> step of the central differences, and allowed relative error."""

CERTAIN = 30.0
"""Length of a hidden state along its target's row for which q_t is 1 in float64."""


def differences(subject: Subject) -> None:
    """Autograd's derivatives agree with finite differences.

    Central ones, along a random direction of each statistic, or of the logits.
    """
    call, held = loss_call(subject), HeldConstants()
    with held:
        loss_M = call.loss_M(call.leaves)
    if not loss_M.requires_grad:
        raise Explained(CUT_OFF)
    size, allowed = STEPS.get(loss_M.dtype, STEPS[torch.float32])
    generator = torch.Generator().manual_seed(subject.seed)
    slopes = call.slopes(loss_M)
    if not _any(slopes) and not _any(_slopes_up_to_certainty(subject)):
        raise Explained("its gradient is 0 on every token: it trains nothing")
    for name, slope in slopes.items():
        leaf = call.leaves[name].detach()
        along = torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype)
        expected_M = _over_tokens(slope * along)

        def loss_at(step: float, name: str = name, leaf: Tensor = leaf, along: Tensor = along) -> Tensor:
            held.rewind()
            with held:
                loss_M = call.loss_M({**call.leaves, name: leaf + step * along})
            return loss_M.detach()

        numeric_M = (loss_at(size) - loss_at(-size)) / (2 * size)
        scale = expected_M.norm().clamp_min(1e-3 * float(loss_M.detach().norm()) + 1e-12)
        error = float((numeric_M - expected_M).norm() / scale)
        if not error < allowed:
            raise Broken(f"autograd's derivative of its loss by {name} and finite differences differ by {error:.1e}")


def closed_form(subject: Subject) -> None:
    """Closed-form slopes are those of autograd."""
    call = loss_call(subject)
    if not isinstance(call.objective, StatisticsObjective):
        raise Skipped("slopes belong to a StatisticsObjective")
    slopes = call.objective.slopes(call.statistics({name: leaf.detach() for name, leaf in call.leaves.items()}))
    if slopes is None:
        raise Skipped("it gives none: autograd finds them")
    for name in sorted(slopes.keys() - call.leaves.keys()):
        raise Broken(f"its slopes name '{name}', which it does not need; it needs {', '.join(sorted(call.leaves))}")
    for name, expected_M in call.slopes(call.loss_M(call.leaves)).items():
        slope_M = slopes.get(name, torch.zeros_like(expected_M))
        if slope_M.shape != expected_M.shape:
            raise Broken(f"its slope of {name} has shape {tuple(slope_M.shape)}; expected {tuple(expected_M.shape)}")
        error = float((slope_M - expected_M).norm() / expected_M.norm().clamp_min(1e-6))
        if not error < tolerance(subject):
            raise Broken(f"its slope of {name} and autograd's differ by {error:.1e}")


def _slopes_up_to_certainty(subject: Subject) -> dict[str, Tensor]:
    """Return slopes for target probabilities up to 1: a loss may have gradients only for likely targets."""
    unit_VD = subject.weight_VD / subject.weight_VD.norm(dim=1, keepdim=True)
    targets_ND = unit_VD[subject.labels_N.clamp(min=0)]
    lengths_N = torch.linspace(0, CERTAIN, subject.tokens, dtype=targets_ND.dtype)
    call = loss_call(subject, subject.hidden_ND + lengths_N[:, None] * targets_ND)
    return call.slopes(call.loss_M(call.leaves))


def _any(slopes: Mapping[str, Tensor]) -> bool:
    return any(bool(slope.any()) for slope in slopes.values())


def _over_tokens(value: Tensor) -> Tensor:
    return value if value.dim() == 1 else value.sum(dim=1)
