"""Focal loss: less weight for tokens that the model predicts well (Lin et al., ICCV 2017, Eq. 4)."""

import torch
from torch import Tensor

import emobench


class Focal(emobench.StatisticsObjective):
    """-(1 - q_t)^gamma log q_t

    gamma = 0 is MLE. The weight is not a constant: its gradient is part of the loss, as in the paper.
    """

    gamma: float = emobench.param(2.0, low=0.0, help="how fast the weight of a probable target falls; 0 is MLE")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -self.weight(s) * s.log_prob

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        q, rest = s.log_prob.exp(), -torch.expm1(s.log_prob)
        # log q / (1 - q) has the limit -1 at q = 1, and is 0 / 0 there.
        ratio = torch.where(rest > 0, s.log_prob / rest, -1.0)
        return {"log_prob": self.weight(s) * (self.gamma * q * ratio - 1)}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"weight": self.weight(s)}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return (1 - q_t)^gamma of each token, (N,), differentiable."""
        rest = -torch.expm1(s.log_prob)
        # At q_t = 1 the derivative of the power is infinite for gamma < 1, times a loss of 0; so no power is taken.
        power = rest.clamp(min=torch.finfo(rest.dtype).tiny) ** self.gamma
        return torch.where(rest > 0, power, 0.0**self.gamma)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Focal]
