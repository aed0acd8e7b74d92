"""The other forms of EMO in its authors' code: the repository DRSY/EMO and the package EMOLoss 0.0.3.

Mode 1 leans on MLE and mode 2 on DEMD; the costs come from a `fixed` embedding or, `adaptive`, from the head as it is
now. The authors add 1e-10 to what they divide by. Here DEMD and MLE keep their digits, and where a ratio has no value
its weight is 0, and counted.
"""

from abc import abstractmethod

import torch
from torch import Tensor

import emobench


class _Variant(emobench.StatisticsObjective):
    """What the four forms share."""

    needs = frozenset({"expected_cost"})

    @abstractmethod
    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        """Return the constant weight of each token, (N,), 0 where it has no value."""

    def parts(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        weight = self.weight(s)
        return {"demd": s.expected_cost, "weight": weight, "zero_weight_count": (weight == 0).to(weight.dtype)}

    def cost_of(self, s: emobench.TokenStatistics) -> Tensor:
        """Return DEMD of each token, (N,), or the adaptive forms' u'."""
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

    EMO with a bounded ratio, so that its value falls below MLE where the bound acts. The bound is 3 in `EMOLoss`
    (mode 1), in `emo_patch.py` (commit 54a7880) and in `continual_finetuning/emo_llama.py` (e425b6c,
    `EMOLlamaForCausalLM`).
    """

    max_ratio: float = emobench.param(3.0, low=0.0, help="upper bound of the weight MLE / DEMD")

    def weight(self, s: emobench.TokenStatistics) -> Tensor:
        return super().weight(s).clamp(max=self.max_ratio)


class Emo2Fixed(_FixedCost, _Mode2):
    """sg(DEMD / MLE) * MLE + DEMD

    EMO on the scale of DEMD, to which MLE is weighted: the value is 2 DEMD. `EMOLoss` (mode 2), and
    `EMOLlama2ForCausalLM` in `continual_finetuning/emo_llama.py` (e425b6c), which the authors' LLaMA scripts train.
    """

    name = "emo-2-fixed"


class Emo1Adaptive(_Mode1):
    """0.5 * ( MLE + sg(MLE / u') * u' ),  u' = DEMD + sg(q_t)

    EMO with costs from the head as it is now, detached, in the place of a frozen one. It is the README's "lm_head of
    the model currently being trained", and mode `adaptive_emo` of `language_modeling/gpt2.py`. The u' is of
    `instruction_tuning/emo_llama.py` (b6a7d7a), which takes the target's own q_t, detached, out of q before the
    similarity: the gradient of u' is that of DEMD, its weight is smaller. No clamp there. The value is MLE.
    """

    name = "emo-1-adaptive"
    adaptive_cost = True


class Emo2Adaptive(_Mode2):
    """sg(u' / MLE) * MLE + u',  u' = DEMD + sg(q_t)

    EMO on the scale of DEMD, with costs from the head as it is now, detached. The README names it beside
    `emo-1-adaptive`: its costs and its u', with the weighting of `emo-2-fixed`. The value is 2 u', which is 2, not 0,
    for a token that the model is sure of.
    """

    name = "emo-2-adaptive"
    adaptive_cost = True


def _constant_ratio(above_N: Tensor, below_N: Tensor) -> Tensor:
    ratio_N = (above_N / below_N).detach()
    return torch.where(torch.isfinite(ratio_N), ratio_N, 0.0)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [EmoClamped, Emo2Fixed, Emo1Adaptive, Emo2Adaptive]
