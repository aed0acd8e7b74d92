"""Entropy regularisation, or the confidence penalty (Pereyra et al., ICLR 2017 workshop, Sec. 3)."""

import torch
from torch import Tensor

import emobench


class EntropyRegularization(emobench.StatisticsObjective):
    """-log q_t - beta H,  H = -sum_v q_v log q_v

    Penalises any distribution of low entropy. beta = 0 is MLE.
    """

    needs = frozenset({"entropy"})
    beta: float = emobench.param(0.1, low=0.0, help="strength of the penalty; 0 is MLE")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.log_prob - self.beta * s.entropy

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"log_prob": torch.full_like(s.log_prob, -1), "entropy": torch.full_like(s.entropy, -self.beta)}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"entropy": s.entropy}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [EntropyRegularization]
