"""EAFT: entropy-adaptive fine-tuning (Diao et al., *Resolving Confident Conflicts to Mitigate Forgetting*, 2026)."""

import math

from torch import Tensor
from torch.nn import functional as F

import emobench

LOG_20 = math.log(20)


class Eaft(emobench.WeightedLikelihood):
    """-sg(H / scale)^alpha log q_t,  H = -sum_v q_v log q_v

    A token's loss is small where the model is sure: if its sure prediction is not the target, MLE's gradient would be
    large. Here H is the entropy over the whole vocabulary. The authors use the 20 most likely tokens alone, which is
    `eaft-top-k`; their scale, ln 20, is the default here too, so that both have the same learning rate. A weight above
    1 is possible. alpha = 0 is MLE.
    """

    needs = frozenset({"entropy"})
    alpha: float = emobench.param(1.0, low=0.0, help="exponent of the weight; 0 is MLE")
    scale: float = emobench.param(LOG_20, low=1e-3, help="entropy that has weight 1, in nats; the authors' is ln 20")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return (H / scale)^alpha of each token as a constant, (N,)."""
        return (s.entropy.detach().clamp_min(0) / self.scale) ** self.alpha


class EaftTopK(emobench.LogitsObjective):
    """-sg(H_k / ln k)^alpha log q_t,  H_k = entropy of the k most likely tokens, renormalised to sum to 1

    The authors' form, with k = 20. Their code divides by 3.0 for ln 20 = 2.996 (LLaMA-Factory `_eaft_cross_entropy`);
    axolotl's `eaft_loss` does not divide at all, so its loss is 3 times as large.
    """

    name = "eaft-top-k"
    alpha: float = emobench.param(1.0, low=0.0, help="exponent of the weight; 0 is MLE")
    k: int = emobench.param(20, low=2, help="number of the most likely tokens whose entropy is the weight")

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: object) -> Tensor:
        return self.weight(logits_NV) * F.cross_entropy(logits_NV, targets_N, reduction="none")

    def parts(self, logits_NV: Tensor, targets_N: Tensor, side: object) -> dict[str, Tensor]:
        return {"weight": self.weight(logits_NV)}

    def weight(self, logits_NV: Tensor) -> Tensor:
        """Return (H_k / ln k)^alpha of each token as a constant, (N,)."""
        k = min(self.k, logits_NV.shape[1])
        log_q_NK = logits_NV.detach().topk(k, dim=-1).values.log_softmax(dim=-1)
        q_NK = log_q_NK.exp()
        entropy_N = -(q_NK * log_q_NK.masked_fill(q_NK == 0, 0)).sum(dim=-1)
        return (entropy_N.clamp_min(0) / math.log(self.k)) ** self.alpha


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Eaft, EaftTopK]
