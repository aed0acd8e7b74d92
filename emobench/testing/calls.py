"""One call of an objective's `loss` outside the engine, with its inputs as autograd leaves.

Legend: M target tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from emobench.objectives import IGNORED, CostEmbedding, LogitsObjective, Objective, StatisticsObjective, TokenStatistics
from emobench.objectives.statistics import statistics_from_logits
from emobench.testing.subject import Subject

LOGITS = "the logits"
EXACT = 1e-9
"""Relative error in float64, for the same function with another order of summation."""
SINGLE = 1e-5
"""Relative error for a loss that converts its inputs to float32."""


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


def loss_call(subject: Subject, hidden_ND: Tensor | None = None) -> LossCall:
    """Return the float64 call of a subject's objective on its target tokens, or on other hidden states."""
    objective, kept_N = subject.ready, subject.labels_N != IGNORED
    ids_M = subject.labels_N[kept_N]
    side = {name: value[kept_N] for name, value in subject.side.items()}
    values = {LOGITS: (subject.hidden_ND if hidden_ND is None else hidden_ND)[kept_N] @ subject.weight_VD.T}
    if isinstance(objective, StatisticsObjective):
        cost_MV = (objective.cost_embedding or CostEmbedding(subject.weight_VD)).costs(ids_M)
        values = statistics_from_logits(values[LOGITS], ids_M, objective.statistic_names, cost_MV)
    return LossCall(objective, {name: value.requires_grad_() for name, value in values.items()}, ids_M, side)


def tolerance(subject: Subject) -> float:
    """Return the allowed relative error: larger for an objective that computes its loss in float32."""
    call = loss_call(subject)
    return EXACT if call.loss_M(call.leaves).dtype == torch.float64 else SINGLE
