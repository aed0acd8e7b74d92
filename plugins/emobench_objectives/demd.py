"""DEMD: the differentiable upper bound of the earth mover's distance alone (EMO paper, Eq. 14)."""

import torch
from torch import Tensor

import emobench


class Demd(emobench.StatisticsObjective):
    """Q^T C P = sum_v q_v (1 - cos(e_v, e_t))  for the one-hot P of the target t

    For a one-hot P there is only one transport plan, so the bound equals the earth mover's distance. It is in [0, 2],
    and its gradient vanishes where q_t is 0; EMO therefore adds MLE. `demd-dense` allows any P.
    """

    needs = frozenset({"expected_cost"})
    cost: str = emobench.param(
        "pretrained", help="the cost embedding: pretrained, initial, or a model's name or folder"
    )

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return s.expected_cost

    def slopes(self, s: emobench.TokenStatistics) -> dict[str, Tensor]:
        return {"expected_cost": torch.ones_like(s.expected_cost)}


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [Demd]
