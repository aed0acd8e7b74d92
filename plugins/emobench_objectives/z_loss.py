"""z-loss: MLE with a softmax normaliser held near 1 (PaLM, Chowdhery et al. 2022, Sec. 5)."""

import torch
from torch import Tensor

import emobench


class ZLoss(emobench.StatisticsObjective):
    """-log q_t + coefficient (log Z)^2,  Z = sum_v exp z_v

    MLE does not depend on a constant added to all logits. The second term does, and stops the logits from drifting.
    """

    name = "z-loss"
    needs = frozenset({"log_partition"})
    coefficient: float = emobench.param(1e-4, low=0.0, help="strength of the second term; 0 is MLE, PaLM takes 1e-4")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.log_prob + self.coefficient * s.log_partition.square()

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {
            "log_prob": torch.full_like(s.log_prob, -1),
            "log_partition": 2 * self.coefficient * s.log_partition,
        }

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return log Z, in nats, and the second term."""
        return {"log_partition": s.log_partition, "z_loss": self.coefficient * s.log_partition.square()}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [ZLoss]
