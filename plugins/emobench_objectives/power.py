"""Probability-power losses and their thresholds (Li et al., *Beyond Log Likelihood*, ICLR 2026)."""

import torch
from torch import Tensor

import emobench


class Power(emobench.StatisticsObjective):
    """(1 - q_t^alpha) / alpha * 1[min_prob <= q_t <= max_prob]

    alpha -> 0 is MLE, alpha = 1 is 1 - q_t, and alpha = k is the paper's -q_t^k up to a factor of k and a constant. The
    gradient is q_t^alpha times that of MLE, so a large alpha trains mostly on likely tokens. In the authors' code this
    is `GeneralFamily-alpha`, and with alpha 1 or 0 and one threshold `OnlyTopP`, `OnlyBottomP`, `OnlyTopLogP` and
    `OnlyBottomLogP`. That code averages over the tokens inside the thresholds; here the mean is over all targets.
    Without thresholds it is also the generalised cross-entropy of Zhang and Sabuncu (NeurIPS 2018).
    """

    alpha: float = emobench.param(1.0, low=0.0, help="exponent of the probability; 0 is MLE, 1 is 1 - q_t")
    min_prob: float = emobench.param(0.0, low=0.0, high=1.0, help="train only on targets of at least this probability")
    max_prob: float = emobench.param(1.0, low=0.0, high=1.0, help="train only on targets of at most this probability")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        loss = -torch.expm1(self.alpha * s.log_prob) / self.alpha if self.alpha > 0 else -s.log_prob
        return loss * self.inside(s)

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"log_prob": -self.weight(s)}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return the factor on MLE's gradient, and the number of tokens outside the thresholds."""
        return {"weight": self.weight(s), "outside_count": 1 - self.inside(s)}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return q_t^alpha of each token, (N,), 0 outside the thresholds."""
        return (self.alpha * s.log_prob).exp() * self.inside(s)

    def inside(self, s: emobench.TokenStatistics) -> Tensor:
        """Return 1 for each token whose probability lies within the thresholds, else 0, (N,)."""
        q = s.log_prob.detach().exp()
        return ((q >= self.min_prob) & (q <= self.max_prob)).to(q.dtype)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Power]
