"""Generalised DEMD: the transport cost to a dense target distribution (EMO paper, Eq. 15)."""

from typing import ClassVar

from torch import Tensor

import emobench


class DemdDense(emobench.DenseTargetObjective):
    """|Q - P|^T C P = sum_v |q_v - p_v| sum_w p_w (1 - cos(e_v, e_w))

    The absolute value is elementwise. The loss is 0 where Q = P (Q^T C P is not). For a one-hot P it equals Eq. 14,
    because C(t, t) = 0. In the paper it bounds |Q^T C P - P^T C P|. It also bounds the earth mover's distance: with
    a = (Q - P)+, b = (P - Q)+ and m = min(Q, P), take the plan that moves a_v b_w from v to w, a_v m_k from v to k and
    m_k b_w from k to w. Its cost is the loss minus b^T C b. The benchmark `evidence.emd_bound`
    measures how tight the bound is.
    """

    name = "demd-dense"
    cost: str = emobench.param(
        "pretrained", help="the cost embedding: pretrained, initial, or a model's name or folder"
    )
    cost_embedding: ClassVar[emobench.CostEmbedding | None] = None

    @property
    def reads(self) -> tuple[str, ...]:
        return (*super().reads, *(() if self.cost == "initial" else (self.cost,)))

    def setup(self, context: emobench.SetupContext) -> None:
        super().setup(context)
        self.use_cost(context.cost_embedding(self.cost))  # type: ignore[arg-type]

    def use_cost(self, cost: emobench.CostEmbedding) -> None:
        """Set the cost embedding."""
        vars(self)["cost_embedding"] = cost

    def frozen_state(self) -> dict[str, Tensor]:
        assert self.cost_embedding is not None
        return {**super().frozen_state(), "cost_embedding": self.cost_embedding.rows_VE}

    def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
        assert self.cost_embedding is not None
        p_CV = log_p_CV.exp()
        cost_CV = self.cost_embedding.first(p_CV.shape[1]).expected(p_CV)
        return ((log_q_CV.exp() - p_CV).abs() * cost_CV).sum(dim=-1)


@emobench.hookimpl
def emobench_objectives() -> list[type[emobench.Objective]]:
    return [DemdDense]
