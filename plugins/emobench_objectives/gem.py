"""GEM: a loss that keeps diversity (Li et al., *Preserving Diversity in Supervised Fine-tuning of LLMs*, ICLR 2025)."""

import torch
from torch import Tensor

import emobench

LOGSIGMOID_SCALE = 0.01
"""Of the logit differences in h = logsigmoid: the official code's constant."""


class Gem(emobench.LogitsObjective):
    """-sum_v r_v w_v (log q_t - log q_v),  r = sg(softmax(z / beta))

    w_v = 1 for h = linear, and sg(sigmoid(0.01 (z_v - z_t))) for h = logsigmoid, which is not normalised: it is 1/2 for
    equal logits. With h = linear the gradient by the logits is r - 1[v=t]: the gradient of MLE with the sharper r
    instead of q. beta = 1 trains like MLE. With a smaller beta the gradient vanishes earlier, while Q is still flat.
    The value is MLE + sum_v r_v log q_v, which is below MLE and may be negative.
    The formulas are those of `gem_loss` in the official code, liziniu/GEM.
    """

    beta: float = emobench.param(0.7, low=1e-3, high=1.0, help="temperature of r; nearer 1 trains more like MLE")
    h: str = emobench.param("linear", choices=("linear", "logsigmoid"), help="how logit differences are weighed")

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: object) -> Tensor:
        log_q_NV = logits_NV.log_softmax(dim=-1)
        weight_NV = self._weight(logits_NV.detach(), targets_N)
        margin_NV = log_q_NV.gather(1, targets_N[:, None]) - log_q_NV
        # A token masked by -inf has weight 0, and its margin no value.
        return -(weight_NV * margin_NV.masked_fill(weight_NV == 0, 0)).sum(dim=-1)

    def _weight(self, logits_NV: Tensor, targets_N: Tensor) -> Tensor:
        weight_NV = (logits_NV / self.beta).softmax(dim=-1)
        if self.h == "logsigmoid":
            margin_NV = logits_NV - logits_NV.gather(1, targets_N[:, None])
            weight_NV *= torch.sigmoid(LOGSIGMOID_SCALE * margin_NV)
        return weight_NV


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Gem]
