"""TaiLr: total variation distance, tailored to tokens (Ji et al., ICLR 2023; EMO paper, Eq. 17)."""

import torch
from torch import Tensor

import emobench


class TaiLr(emobench.WeightedLikelihood):
    """-sg( q_t / (g + (1 - g) q_t) ) log q_t

    g -> 0 is MLE; g -> 1 weights a token by its probability. The EMO paper's sweep {0.9, 0.8, 0.7} is that of its
    code, where g has the opposite direction: see `tailr-official`. The weight is a constant, as in TaiLr's own code.
    That code also bounds it from below (`density_min_weight`); Eq. 17 has no bound.
    """

    name = "tailr"
    gamma: float = emobench.param(0.1, low=0.0, high=1.0, help="0 is MLE; 1 weighs a token by its probability")
    min_weight: float = emobench.param(0.0, low=0.0, high=1.0, help="lower bound of a token's weight; 0 is Eq. 17")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the constant weight of each token, (N,), in [min_weight, 1]."""
        return total_variation_weight(s.log_prob, self.gamma).clamp(min=self.min_weight)


class TaiLrOfficial(emobench.WeightedLikelihood):
    """-( g + (1 - g) clamp( sg( q_t / ((1 - g) + g q_t) ), 0.2, 1 ) ) log q_t

    TaiLr in the EMO repository (`language_modeling/gpt2.py`, mode `tvd`). It is mixed with MLE, its weight is bounded,
    and one g sets both; g = 1 is MLE. The EMO paper's sweep {0.9, 0.8, 0.7} is for this g: it is 0.1, 0.2, 0.3 in
    Eq. 17. The upper bound is never active, because the ratio is at most 1.
    """

    name = "tailr-official"
    gamma: float = emobench.param(
        0.9, low=0.0, high=1.0, help="1 is MLE; 0 weighs a token by its probability, from 0.2"
    )

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the constant weight of each token, (N,), in [gamma + 0.2 (1 - gamma), 1]."""
        weight = total_variation_weight(s.log_prob, 1 - self.gamma).clamp(min=0.2)
        return self.gamma + (1 - self.gamma) * weight


def total_variation_weight(log_prob_N: Tensor, gamma: float) -> Tensor:
    """Return q_t / (gamma + (1 - gamma) q_t) of each token as a constant, (N,), in [0, 1]."""
    # With both sides divided by q_t nothing is 0/0, not even where q_t underflows at gamma = 0.
    inverse_q = (-log_prob_N.detach()).exp()
    return 1 / (1 - gamma + gamma * inverse_q) if gamma > 0 else torch.ones_like(inverse_q)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [TaiLr, TaiLrOfficial]
