"""ASFT: anchored supervised fine-tuning (Zhu et al., ICLR 2026)."""

from torch import Tensor

import emobench


class Asft(emobench.DenseTargetObjective):
    """-sg(q_t) log q_t + kl_weight * KL(P || Q),  P the model before training

    DFT with an anchor: the divergence from the base model at each target token, in the direction of the authors' code
    (`train_v2.py`, `F.kl_div(log_softmax(logits), softmax(ref_logits))`), over the whole vocabulary. kl_weight = 0 is
    DFT. The sum of both parts is divided once, by the number of target tokens of the whole batch; LLaMA-Factory's
    `asft_loss_func` divides each micro-batch by its own number, so that its gradient depends on the accumulation.
    """

    target: str = emobench.param(
        "pretrained",
        help="P: pretrained (the model before training), language (the oracle language's own), or a model's name or "
        "folder",
    )
    kl_weight: float = emobench.param(0.1, low=0.0, help="weight of the divergence; 0 is DFT")

    def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
        log_q_C = log_q_CV.gather(1, targets_C[:, None])[:, 0]
        p_CV = log_p_CV.exp()
        divergence_C = (p_CV * (log_p_CV - log_q_CV).masked_fill(p_CV == 0, 0)).sum(dim=-1)
        return self.kl_weight * divergence_C - log_q_C.detach().exp() * log_q_C


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Asft]
