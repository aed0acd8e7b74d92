"""Label smoothing: part of the target's mass spread evenly (Szegedy et al., CVPR 2016, Sec. 7)."""

import torch
from torch import Tensor

import emobench


class LabelSmoothing(emobench.StatisticsObjective):
    """-(1 - epsilon) log q_t - (epsilon / V) sum_v log q_v

    epsilon = 0 is MLE. V is the number of rows of the head, as `torch.nn.functional.cross_entropy(label_smoothing=)`
    does.
    """

    needs = frozenset({"mean_log_prob"})
    epsilon: float = emobench.param(0.1, low=0.0, high=1.0, help="mass taken from the target; 0 is MLE")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -(1 - self.epsilon) * s.log_prob - self.epsilon * s.mean_log_prob

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {
            "log_prob": torch.full_like(s.log_prob, self.epsilon - 1),
            "mean_log_prob": torch.full_like(s.mean_log_prob, -self.epsilon),
        }

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return the cross-entropy to the uniform distribution, in nats."""
        return {"uniform_cross_entropy": -s.mean_log_prob}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [LabelSmoothing]
