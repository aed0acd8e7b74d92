"""The other forms of EMO in its authors' code: the repository DRSY/EMO and the package EMOLoss 0.0.3.

Mode 1 has the scale of MLE, mode 2 the scale of DEMD. The costs come from a `fixed` embedding or, `adaptive`, from the
current head. The authors add 1e-10 to the divisors. Here DEMD and MLE keep their digits; where a divisor is 0, the
weight is 0 and the token is counted.
"""

from abc import abstractmethod

import torch
from torch import Tensor

import emobench


class _Variant(emobench.StatisticsObjective):
    """Base of the forms."""

    needs = frozenset({"expected_cost"})

    @abstractmethod
    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the constant weight of each token, (N,), 0 where its divisor is 0."""

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        weight = self.weight(s)
        return {"demd": s.expected_cost, "weight": weight, "zero_weight_count": (weight == 0).to(weight.dtype)}

    def cost_of(self, s: emobench.TokenStatistics) -> Tensor:
        """Return DEMD of each token, (N,), or u' for the adaptive forms."""
        return s.expected_cost + s.log_prob.detach().exp() if self.adaptive_cost else s.expected_cost


class _Mode1(_Variant):
    """0.5 * ( MLE + sg(MLE / DEMD) * DEMD )"""

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return 0.5 * (-s.log_prob + self.weight(s) * self.cost_of(s))

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        weight = self.weight(s)
        return {"log_prob": torch.full_like(weight, -0.5), "expected_cost": 0.5 * weight}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        return _constant_ratio(-s.log_prob, self.cost_of(s))


class _Mode2(_Variant):
    """sg(DEMD / MLE) * MLE + DEMD"""

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return -self.weight(s) * s.log_prob + self.cost_of(s)

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        weight = self.weight(s)
        return {"log_prob": -weight, "expected_cost": torch.ones_like(weight)}

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        return _constant_ratio(self.cost_of(s), -s.log_prob)


class _FixedCost(_Variant):
    """Costs from a frozen embedding."""

    cost: str = emobench.param(
        "pretrained", help="the cost embedding: pretrained, initial, or a model's name or folder"
    )


class EmoClamped(_FixedCost, _Mode1):
    """0.5 * ( MLE + min( sg(MLE / DEMD), max_ratio ) * DEMD )

    EMO with a bounded ratio. Where the bound is active, the value is smaller than MLE. The bound is 3 in `EMOLoss`
    (mode 1), in `emo_patch.py` (commit 54a7880) and in `continual_finetuning/emo_llama.py` (e425b6c,
    `EMOLlamaForCausalLM`).
    """

    max_ratio: float = emobench.param(3.0, low=0.0, help="upper bound of the weight MLE / DEMD")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        return super().weight(s).clamp(max=self.max_ratio)


class Emo2Fixed(_FixedCost, _Mode2):
    """sg(DEMD / MLE) * MLE + DEMD

    EMO on the scale of DEMD: MLE is weighted to it, and the value is 2 DEMD. `EMOLoss` (mode 2), and
    `EMOLlama2ForCausalLM` in `continual_finetuning/emo_llama.py` (e425b6c), which the authors' LLaMA scripts train.
    """

    name = "emo-2-fixed"


class Emo1Adaptive(_Mode1):
    """0.5 * ( MLE + sg(MLE / u') * u' ),  u' = DEMD + sg(q_t)

    EMO with costs from the current head, detached, instead of a frozen one. It is the README's "lm_head of the model
    currently being trained", and mode `adaptive_emo` of `language_modeling/gpt2.py`. The u' is from
    `instruction_tuning/emo_llama.py` (b6a7d7a), which removes the target's q_t, detached, from q before the similarity.
    The gradient of u' is that of DEMD; its weight is smaller. That code has no clamp. The value is MLE.
    """

    name = "emo-1-adaptive"
    adaptive_cost = True


class Emo2Adaptive(_Mode2):
    """sg(u' / MLE) * MLE + u',  u' = DEMD + sg(q_t)

    EMO on the scale of DEMD, with costs from the current head, detached. The README names it together with
    `emo-1-adaptive`: it has the same costs and u', with the weighting of `emo-2-fixed`. The value is 2 u'. For a token
    with q_t = 1 it is 2, not 0.
    """

    name = "emo-2-adaptive"
    adaptive_cost = True


def _constant_ratio(above_N: Tensor, below_N: Tensor) -> Tensor:
    ratio_N = (above_N / below_N).detach()
    return torch.where(torch.isfinite(ratio_N), ratio_N, 0.0)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [EmoClamped, Emo2Fixed, Emo1Adaptive, Emo2Adaptive]
