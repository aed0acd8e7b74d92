"""EMO: earth mover distance optimization (Ren, Wu, Zhu; ICLR 2024, Eq. 14 and 19)."""

import torch
from torch import Tensor

import emobench


class Emo(emobench.StatisticsObjective):
    """0.5 * ( MLE + sg(MLE / DEMD) * DEMD )

    DEMD = sum_v q_v (1 - cos(e_v, e_t)) is the upper bound of the earth mover's distance between q and the one-hot
    target (Eq. 14), with e the frozen rows of the pre-trained LM head. Each token has its own ratio, which is a
    constant for autograd (official code, `emo_patch.py`). The value of EMO therefore equals MLE and only its gradient
    differs: see the logged parts. There is no epsilon and no clamp. DEMD is a sum of non-negative terms, so the
    gradient of the logits has an L1 norm of at most (1 - q_t) + MLE. Where DEMD is 0, the weight is 0 and the token is
    counted.
    """

    name = "emo"
    needs = frozenset({"expected_cost"})
    cost: str = emobench.param(
        "pretrained", help="the cost embedding: pretrained, initial, or a model's name or folder"
    )

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return 0.5 * (-s.log_prob + self.weight(s) * s.expected_cost)

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        weight = self.weight(s)
        return {"log_prob": torch.full_like(weight, -0.5), "expected_cost": 0.5 * weight}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        weight = self.weight(s)
        return {"demd": s.expected_cost, "weight": weight, "zero_weight_count": (weight == 0).to(weight.dtype)}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return MLE / DEMD of each token as a constant, (N,), 0 where DEMD is 0."""
        ratio = (-s.log_prob / s.expected_cost).detach()
        return torch.nan_to_num(ratio, nan=0.0, posinf=0.0, neginf=0.0)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Emo]
