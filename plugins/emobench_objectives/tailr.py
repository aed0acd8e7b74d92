"""TaiLr: total variation distance, tailored to tokens (Ji et al., ICLR 2023; EMO paper, Eq. 17)."""

from torch import Tensor

import emobench


class TaiLr(emobench.StatisticsObjective):
    """-sg( q_t / (g + (1 - g) q_t) ) log q_t

    g -> 0 is MLE and g -> 1 weighs a token by its probability. The sweep {0.9, 0.8, 0.7} of the EMO paper is that of
    its code, where g runs the other way: 0.1, 0.2, 0.3 here. The weight is a constant, as in TaiLr's own code, which
    also bounds it from below (`density_min_weight`); Eq. 17 has no bound.
    """

    name = "tailr"
    gamma: float = emobench.param(0.1, low=0.0, high=1.0, help="0 is MLE; 1 weighs a token by its probability")
    min_weight: float = emobench.param(0.0, low=0.0, high=1.0, help="lower bound of a token's weight; 0 is Eq. 17")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -self.weight(s) * s.log_prob

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"weight": self.weight(s)}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the constant weight of each token, (N,), in [min_weight, 1]."""
        # With both sides divided by q_t nothing is 0/0, not even where q_t underflows at gamma = 0.
        inverse_q = (-s.log_prob.detach()).exp()
        weight = 1 / (1 - self.gamma + self.gamma * inverse_q) if self.gamma > 0 else inverse_q.new_ones(len(s))
        return weight.clamp(min=self.min_weight)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [TaiLr]
