"""NTL: number-token loss, a distance of numbers beside the likelihood (Zausinger et al., ICML 2025)."""

import torch
from torch import Tensor

import emobench


class Ntl(emobench.StatisticsObjective):
    """-log q_t + weight * 1[t is a number] * sum_v q_v C(t, v)

    C(t, v) = |x_t - x_v| between tokens that are the numbers x, and 1.01 max |x - x'| for a token v that is no number.
    It is NTL-WAS as in the authors' package (ntloss 0.3.0, `NTLoss` with `reweigh`), whose weight is 0.3. The paper's
    own form divides q by the probability of all numbers instead, and has no cost for words.

    The sum over all targets is divided by their number. The authors divide the second part by the number of numbers
    among the targets of a batch: with a share p of numbers, their 0.3 is weight=0.3/p. Without the indicator it is
    `mle + 0.3*demd(cost=digits)`. `cost=digits` has the tokens 0 to 9, `cost=numbers` all numbers that are single
    tokens. Of a cost that is not numeric, every target counts as a number.
    """

    needs = frozenset({"expected_cost"})
    cost: str = emobench.param("digits", help="the ground cost: digits, numbers, or another cost")
    weight: float = emobench.param(0.3, low=0.0, help="weight of the expected cost; 0 is MLE")

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -s.log_prob + self.cost_weight(s) * s.expected_cost

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"log_prob": torch.full_like(s.log_prob, -1.0), "expected_cost": self.cost_weight(s)}

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        """Return the second part of the loss."""
        return {"ntl": self.cost_weight(s) * s.expected_cost}

    def cost_weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the weight of the expected cost of each token, (N,): 0 where the target is no number."""
        assert self.cost_embedding is not None
        return self.weight * self.cost_embedding.covers(s.targets).to(s.log_prob.dtype)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Ntl]
