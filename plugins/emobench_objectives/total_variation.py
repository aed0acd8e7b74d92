"""Total variation distance to the one-hot target (Ghosh, Kumar, Sastry; AAAI 2017: half of "MAE")."""

import torch
from torch import Tensor

import emobench


class TotalVariation(emobench.StatisticsObjective):
    """1 - q_t

    That is 0.5 sum_v |q_v - 1[v=t]|: it is bounded, and a wrong target costs at most 1. Its gradient is q_t times that
    of MLE. It vanishes where the target has probability 0; TaiLr fixes this.
    """

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -torch.expm1(s.log_prob)

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"log_prob": -s.log_prob.exp()}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return q_t, the factor on MLE's gradient."""
        return {"weight": s.log_prob.exp()}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [TotalVariation]
