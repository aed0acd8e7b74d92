"""DFT: dynamic fine-tuning (Wu et al., *On the Generalization of SFT*, 2025, Eq. 9)."""

from torch import Tensor

import emobench


class Dft(emobench.WeightedLikelihood):
    """-sg(q_t) log q_t

    The weight cancels the 1 / q_t in the gradient of log q_t, so the gradient is that of -q_t. This is the loss `dft`
    of TRL's SFTTrainer. It equals Eq. 17 of the EMO paper with g = 1, and Eq. 18 with g = 0.
    """

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return q_t of each token as a constant, (N,)."""
        return s.log_prob.detach().exp()


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Dft]
