"""ProFit: SFT on tokens that the model finds likely (Liu et al., Findings of ACL 2026)."""

from torch import Tensor

import emobench


class ProFit(emobench.WeightedLikelihood):
    """-1[q_t >= min_prob] log q_t

    Targets of a lower probability are masked: they are taken for replaceable wording. It is the authors' direction
    `higher` with the threshold 0.1 (`_profit_cross_entropy`). The mean is over all targets, masked ones too, as in
    their code under transformers' Trainer. min_prob = 0 is MLE. `power(alpha=0, min_prob=...)` is the same function.
    """

    name = "profit"
    min_prob: float = emobench.param(0.1, low=0.0, high=1.0, help="train only on targets of at least this probability")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return 1 for each token whose target is likely enough, else 0, (N,)."""
        q = s.log_prob.detach().exp()
        return (q >= self.min_prob).to(q.dtype)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [ProFit]
