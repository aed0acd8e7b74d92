"""The Brier score: squared distance to the one-hot target (Brier 1950; Gneiting and Raftery, JASA 2007)."""

import torch
from torch import Tensor

import emobench


class Brier(emobench.StatisticsObjective):
    """sum_v (q_v - 1[v=t])^2 = sum_v q_v^2 - 2 q_t + 1

    A proper score, like MLE, but bounded: a target of probability 0 costs at most 2.
    """

    needs = frozenset({"sum_squares"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return s.sum_squares - 2 * s.log_prob.exp() + 1

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"log_prob": -2 * s.log_prob.exp(), "sum_squares": torch.ones_like(s.sum_squares)}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"target_prob": s.log_prob.exp(), "sum_squares": s.sum_squares}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Brier]
