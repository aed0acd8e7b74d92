"""Target-SFT: a target distribution from the model and a teacher (Xie et al., 2026, arXiv 2606.11189)."""

import torch
from torch import Tensor

import emobench


class TargetSft(emobench.DenseTargetObjective):
    """-sum_v Q_v log q_v,  Q = sg(q_t) 1[v=t] + (1 - sg(q_t)) G,  G proportional to sg(q)^(1 - eta) P^eta

    The target Q trusts a token as far as the model finds it likely, and gives the rest to alternatives that a teacher P
    guides. Q is a constant, so the gradient for the logits is q - Q. Equations of the authors' page
    (txie1.github.io/Target-SFT); their teachers and their eta are not on it. eta = 0 has the gradient of DFT.
    """

    target: str = emobench.param(
        "pretrained",
        help="P: a model's name or folder, pretrained (the model before training), or language (the oracle language's "
        "own)",
    )
    eta: float = emobench.param(0.5, low=0.0, high=1.0, help="share of the teacher in the alternatives")

    def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
        constant_CV = log_q_CV.detach()
        finite_p_CV = log_p_CV.clamp(min=torch.finfo(log_p_CV.dtype).min)  # 0 * -inf has no value
        guided_CV = ((1 - self.eta) * constant_CV + self.eta * finite_p_CV).softmax(dim=-1)
        trust_C = constant_CV.gather(1, targets_C[:, None])[:, 0].exp()
        imitation_C = -log_q_CV.gather(1, targets_C[:, None])[:, 0]
        alternatives_C = -(guided_CV * log_q_CV.masked_fill(guided_CV == 0, 0)).sum(dim=-1)
        return trust_C * imitation_C + (1 - trust_C) * alternatives_C


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [TargetSft]
