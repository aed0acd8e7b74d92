"""The transport cost between tokens: 1 - cosine of their rows in a frozen embedding (EMO paper, Eq. 14).

Legend: V vocabulary, E width of the embedding, U distinct target tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from emobench.objectives.products import multiply_wide


class CostEmbedding:
    """Rows of a frozen embedding, divided by their L2 norm once; never a parameter, never saved with a model.

    A zero row (padding) stays zero, so that its cost to every other token is 1. Rows kept in half precision are
    divided by the norms of the *rounded* rows when costs are made, which keeps near-duplicate tokens apart.
    """

    def __init__(
        self, weight_VE: Tensor, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> None:
        exact = weight_VE.dtype if weight_VE.dtype == torch.float64 else torch.float32
        rows_VE = weight_VE.detach().to(device=device, dtype=exact, copy=True)
        rows_VE /= rows_VE.norm(dim=1, keepdim=True).clamp_min(torch.finfo(exact).tiny)
        self.rows_VE = rows_VE.to(dtype or exact)
        norm_V = self.rows_VE.to(exact).norm(dim=1)
        self.inverse_norm_V = torch.where(norm_V > 0, 1 / norm_V, torch.zeros_like(norm_V))

    def __len__(self) -> int:
        return len(self.rows_VE)

    def costs(self, tokens_U: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return 1 - cos between each of `tokens_U` and every token, (U, V), at least 0, each self-cost exactly 0.

        They are written to `out` where it is given, (U, V).
        """
        exact = self.inverse_norm_V.dtype
        cosine_UV = self.rows_VE.new_empty(len(tokens_U), len(self), dtype=exact) if out is None else out
        multiply_wide(self.rows_VE[tokens_U], self.rows_VE, cosine_UV)
        cosine_UV *= self.inverse_norm_V[tokens_U, None]
        cosine_UV *= self.inverse_norm_V
        cost_UV = cosine_UV.neg_().add_(1).clamp_(min=0)
        return cost_UV.scatter_(1, tokens_U[:, None], 0)

    def expected(self, probs_CV: Tensor) -> Tensor:
        """Return sum_w P(w) C(v, w) for every token v and each distribution P of a chunk, (C, V), in float32.

        Two products of width E in the place of one with the V x V cost matrix. float64 rows give float64.
        """
        exact = self.inverse_norm_V.dtype
        probs_CV = probs_CV.to(exact)
        scaled_CV = probs_CV * self.inverse_norm_V
        mean_CE = scaled_CV @ self.rows_VE.to(exact)
        cost_CV = (mean_CE @ self.rows_VE.to(exact).T).mul_(self.inverse_norm_V)
        cost_CV = torch.sub(probs_CV.sum(dim=1, keepdim=True), cost_CV, out=cost_CV)
        # A zero row costs 1 to any other token and, like all, nothing to itself.
        return cost_CV.sub_(probs_CV * (self.inverse_norm_V == 0)).clamp_(min=0)

    def to(self, device: torch.device | str) -> CostEmbedding:
        """Move the rows to a device, in place; they do not follow `model.to()`."""
        self.rows_VE = self.rows_VE.to(device)
        self.inverse_norm_V = self.inverse_norm_V.to(device)
        return self
