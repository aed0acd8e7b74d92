"""Knowledge distillation: divergences between the model Q and a dense target P, such as a teacher's.

A temperature softens both distributions. The divergence is multiplied by its square, so the size of the gradients stays
the same (Hinton, Vinyals, Dean, *Distilling the Knowledge in a Neural Network*, 2015).
"""

import math
from abc import abstractmethod

from torch import Tensor

import emobench


class _Distillation(emobench.DenseTargetObjective):
    """alpha MLE + (1 - alpha) T^2 D(P_T, Q_T)"""

    temperature: float = emobench.param(1.0, low=1e-3, help="T: both distributions are proportional to their 1/T power")
    alpha: float = emobench.param(0.0, low=0.0, high=1.0, help="share of MLE in the loss")

    @abstractmethod
    def divergence(self, log_q_CV: Tensor, log_p_CV: Tensor) -> Tensor:
        """Return D of each token in nats, (C,)."""

    def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
        soft = self.divergence(self._soften(log_q_CV), self._soften(log_p_CV)) * self.temperature**2
        if self.alpha == 0:
            return soft
        mle = -log_q_CV.gather(1, targets_C[:, None])[:, 0]
        return self.alpha * mle + (1 - self.alpha) * soft

    def _soften(self, log_p_CV: Tensor) -> Tensor:
        return log_p_CV if self.temperature == 1 else (log_p_CV / self.temperature).log_softmax(dim=-1)


class KdForward(_Distillation):
    """KL(P || Q) = sum_v p_v (log p_v - log q_v)

    Knowledge distillation by the forward divergence (Hinton, Vinyals, Dean, 2015). Its gradient is that of the
    cross-entropy with P; for a one-hot P it is MLE.
    """

    def divergence(self, log_q_CV: Tensor, log_p_CV: Tensor) -> Tensor:
        return _kl(log_p_CV, log_q_CV)


class KdReverse(_Distillation):
    """KL(Q || P) = sum_v q_v (log q_v - log p_v)

    Knowledge distillation by the reverse divergence, which is mode-seeking: Q is penalised for mass where P has none.
    It is infinite if a token has probability 0 under P but not under Q. The divergence is exact at each position of the
    training text, as in GKD (Agarwal et al., ICLR 2024) with lambda = 0. MiniLLM (Gu et al., ICLR 2024) uses samples of
    the model instead.
    """

    def divergence(self, log_q_CV: Tensor, log_p_CV: Tensor) -> Tensor:
        return _kl(log_q_CV, log_p_CV)


class KdJs(_Distillation):
    """beta KL(P || M) + (1 - beta) KL(Q || M),  M = beta P + (1 - beta) Q

    The generalised Jensen-Shannon divergence of GKD (Agarwal et al., ICLR 2024, Eq. 1). At beta = 0 and 1 it is 0. As
    in TRL's `GKDTrainer.generalized_jsd_loss`, beta = 0 is KL(P || Q) and beta = 1 is KL(Q || P); these are the limits
    of the divergence divided by beta and by 1 - beta. (TRL does not multiply by T^2.)
    """

    beta: float = emobench.param(
        0.5, low=0.0, high=1.0, help="weight of P in the mixture; 0 is kd-forward, 1 kd-reverse"
    )

    def divergence(self, log_q_CV: Tensor, log_p_CV: Tensor) -> Tensor:
        if self.beta == 0:
            return _kl(log_p_CV, log_q_CV)
        if self.beta == 1:
            return _kl(log_q_CV, log_p_CV)
        log_m_CV = (log_p_CV + math.log(self.beta)).logaddexp(log_q_CV + math.log1p(-self.beta))
        return self.beta * _kl(log_p_CV, log_m_CV) + (1 - self.beta) * _kl(log_q_CV, log_m_CV)


def _kl(log_a_CV: Tensor, log_b_CV: Tensor) -> Tensor:
    """Return sum_v a_v (log a_v - log b_v), (C,), where 0 log 0 = 0, also for the gradient."""
    a_CV = log_a_CV.exp()
    return (a_CV * (log_a_CV - log_b_CV).masked_fill(a_CV == 0, 0)).sum(dim=-1)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [KdForward, KdReverse, KdJs]
