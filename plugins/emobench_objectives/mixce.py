"""MixCE: a mixture of forward and reverse cross-entropy (Zhang et al., ACL 2023; EMO paper, Eq. 18)."""

from torch import Tensor

import emobench


class MixCE(emobench.WeightedLikelihood):
    """-( g + (1 - g) sg(q_t) ) log q_t

    g = 1 is MLE. The weight is a constant, as in the official code (`language_modeling/gpt2.py`).
    """

    name = "mixce"
    gamma: float = emobench.param(0.9, low=0.0, high=1.0, help="1 is MLE; 0 weighs a token by its probability")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the constant weight of each token, (N,), in [gamma, 1]."""
        return self.gamma + (1 - self.gamma) * s.log_prob.detach().exp()


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [MixCE]
