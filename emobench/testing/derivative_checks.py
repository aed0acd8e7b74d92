"""Derivatives: autograd against finite differences, and closed-form slopes against autograd.

Legend: M target tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from emobench.core.conformance import Broken, Explained, Skipped, check
from emobench.objectives import IGNORED, CostEmbedding, LogitsObjective, Objective, StatisticsObjective, TokenStatistics
from emobench.objectives.statistics import statistics_from_logits
from emobench.testing.subject import CUT_OFF, CheckedObjective

LOGITS = "the logits"
EXACT = 1e-9
"""Relative error in float64, for the same function with another order of summation."""
SINGLE = 1e-5
"""Relative error for a loss that converts its inputs to float32."""
STEPS = {torch.float64: (1e-5, 1e-5), torch.float32: (1e-2, 1e-2)}
"""Precision of the loss -> step of the central differences, and allowed relative error."""

CERTAIN = 30.0
"""Length of a hidden state along its target's row for which q_t is 1 in float64."""
_DETACH = (Tensor.detach, Tensor.detach_, torch.detach)
_SWITCHES = (torch._C._set_grad_enabled,)
"""Functions that no_grad calls. They are always executed: gradients would otherwise stay disabled."""


class HeldConstants(TorchFunctionMode):
    """Gives a function the same constants in each call: the values that it detached, or computed under no_grad, in the
    first call.

    Autograd treats these parts as constants. Finite differences must also hold them constant to give the same gradient.
    Call `rewind` before each repetition.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Any] = []
        self._next: int | None = None

    def rewind(self) -> None:
        """Return the stored constants from now on, starting with the first."""
        self._next = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SWITCHES or (torch.is_grad_enabled() and func not in _DETACH):
            return func(*args, **(kwargs or {}))
        if self._next is not None and self._next < len(self._held):
            self._next += 1
            return self._held[self._next - 1]
        out = func(*args, **(kwargs or {}))
        self._held.append(out)
        return out


@dataclass(frozen=True)
class LossCall:
    """The inputs of `loss` on the target tokens: statistics by name, (M,), or the logits, (M, V)."""

    objective: Objective
    leaves: dict[str, Tensor]
    ids_M: Tensor
    side: dict[str, Tensor]

    def statistics(self, values: Mapping[str, Tensor]) -> TokenStatistics:
        return TokenStatistics(values, self.ids_M, self.side)

    def loss_M(self, values: Mapping[str, Tensor]) -> Tensor:
        if isinstance(self.objective, LogitsObjective):
            return self.objective.loss(values[LOGITS], self.ids_M, self.side)
        assert isinstance(self.objective, StatisticsObjective)
        return self.objective.loss(self.statistics(values))

    def slopes(self, loss_M: Tensor) -> dict[str, Tensor]:
        """Return autograd's d loss / d leaf; 0 if the loss does not depend on a leaf."""
        slopes = torch.autograd.grad(loss_M.sum(), list(self.leaves.values()), allow_unused=True)
        pairs = zip(self.leaves.items(), slopes, strict=True)
        return {name: torch.zeros_like(leaf) if slope is None else slope for (name, leaf), slope in pairs}


def loss_call(subject: CheckedObjective, hidden_ND: Tensor | None = None) -> LossCall:
    """Return the float64 call of a subject's objective on its target tokens, or on other hidden states."""
    objective, kept_N = subject.ready, subject.labels_N != IGNORED
    ids_M = subject.labels_N[kept_N]
    side = {name: value[kept_N] for name, value in subject.side.items()}
    values = {LOGITS: (subject.hidden_ND if hidden_ND is None else hidden_ND)[kept_N] @ subject.weight_VD.T}
    if isinstance(objective, StatisticsObjective):
        cost_MV = (objective.cost_embedding or CostEmbedding(subject.weight_VD)).costs(ids_M)
        values = statistics_from_logits(values[LOGITS], ids_M, objective.statistic_names, cost_MV)
    return LossCall(objective, {name: value.requires_grad_() for name, value in values.items()}, ids_M, side)


def tolerance(subject: CheckedObjective) -> float:
    """Return the allowed relative error: larger for an objective that computes its loss in float32."""
    call = loss_call(subject)
    return EXACT if call.loss_M(call.leaves).dtype == torch.float64 else SINGLE


@check(
    "A part of the loss is cut from autograd without `.detach()`: a tensor made anew, `.item()`, rounding, or a "
    "custom backward that is another function's. Constants are marked by `.detach()` or torch.no_grad(); or a "
    "token's loss reads other tokens.",
)
def gradients(subject: CheckedObjective) -> None:
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


@check("Differentiate again: parts under `.detach()` are constants; a statistic that is left out has slope 0.")
def slopes(subject: CheckedObjective) -> None:
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


def _slopes_up_to_certainty(subject: CheckedObjective) -> dict[str, Tensor]:
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
