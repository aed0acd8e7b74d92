"""Maximum likelihood: the cross-entropy of the target token (EMO paper, Eq. 3-5)."""

import torch
from torch import Tensor

import emobench


class Mle(emobench.StatisticsObjective):
    """-log q_t"""

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.log_prob

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"log_prob": torch.full_like(s.log_prob, -1)}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Mle]
