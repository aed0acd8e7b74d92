"""iw-SFT: importance-weighted supervised fine-tuning (Qin and Springenberg, 2025, arXiv 2507.12856)."""

from collections.abc import Mapping

from torch import Tensor

import emobench


class IwSft(emobench.WeightedLikelihood):
    """-sg(clip(q_t / b_t, 1 - clip, 1 + clip)) log q_t

    log b_t is the log-probability of the token under the model that wrote the data, in nats: the column
    `behavior_log_prob` of the corpus. It is the weight of each token in the authors' `IwSFTLoss`
    (`bounding_trainers.py`, `sum_over_time=False`, where the column is `ref_log_probs`), with their limits of 0.2 and
    1.8. Their script takes one weight for each response instead, which reads the other tokens. clip = 0 is MLE.
    """

    needs = frozenset({"behavior_log_prob"})
    clip: float = emobench.param(0.8, low=0.0, high=1.0, help="largest distance of a weight from 1")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the clipped ratio of the two probabilities, (N,)."""
        behavior = s.side["behavior_log_prob"].to(s.log_prob.dtype)
        ratio = (s.log_prob.detach() - behavior).exp()
        return ratio.clamp(1 - self.clip, 1 + self.clip)

    def example_side(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return log-probabilities for the checks, (B, T)."""
        return {"behavior_log_prob": -(batch["labels"] % 7).double()}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [IwSft]
