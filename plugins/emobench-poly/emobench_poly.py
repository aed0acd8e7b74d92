"""Poly-1: cross-entropy with a changed first coefficient of its series (Leng et al., *PolyLoss*, ICLR 2022)."""

import emobench
from torch import Tensor


class Poly(emobench.StatisticsObjective):
    """-log q_t + epsilon (1 - q_t)

    Cross-entropy is the series (1 - q_t) + (1 - q_t)^2 / 2 + ..., and epsilon is added to its first coefficient. The
    gradient of the logits is (1 + epsilon q_t) times that of MLE: a positive epsilon gives likely tokens more weight,
    a negative one less. With epsilon = -1 the factor is 1 - q_t.
    """

    epsilon: float = emobench.param(1.0, low=-1.0, help="added to the first coefficient; 0 is MLE")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.log_prob - self.epsilon * s.log_prob.expm1()

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return d loss / d log q_t, (N,). Optional: it saves the engine a small autograd call."""
        return {"log_prob": -self.weight(s)}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return further values to log, (N,)."""
        return {"weight": self.weight(s)}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the factor on MLE's gradient, (N,)."""
        return 1 + self.epsilon * s.log_prob.exp()


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Poly]
