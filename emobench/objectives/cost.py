"""The transport cost between tokens: 1 - cosine of their rows in an embedding (EMO paper, Eq. 14).

Legend: V vocabulary, P padded vocabulary, E width of the embedding, U distinct targets, K kept tokens, C tokens of a
chunk.
"""

from __future__ import annotations

import torch
from torch import Tensor

from emobench.core.errors import UserError
from emobench.objectives.engine.products import has_triton, multiply_wide, padded_head, row_buffer, whole_rows

_GPU_MULTIPLE = 128
_SLICE_BYTES = 64 << 20  # of float32 cosines, which are then rounded to half precision


class CostEmbedding:
    """The frozen embedding that defines the costs. It is not a parameter and is not saved with a model.

    By default the rows are a copy, divided once by their L2 norms. `copy=False` uses the tensor itself and stores only
    the norms; this is for a frozen head, or for costs from the head as it is trained. A zero row (padding) stays zero:
    its cost to every other token is 1. Costs from half-precision rows are divided by the norms of the *rounded* rows;
    almost equal tokens then keep different costs.
    """

    def __init__(
        self,
        weight_VE: Tensor,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        copy: bool = True,
    ) -> None:
        exact = weight_VE.dtype if weight_VE.dtype == torch.float64 else torch.float32
        if weight_VE.dim() != 2 or not weight_VE.is_floating_point():
            raise UserError(
                f"A cost embedding is {tuple(weight_VE.shape)} of {weight_VE.dtype}; expected floats, (tokens, width), "
                "such as model.get_output_embeddings().weight."
            )
        if copy:
            rows_VE = weight_VE.detach().to(device=device, dtype=exact, copy=True)
            tiny = torch.finfo(exact).tiny
            for _ in range(2):  # the second pass removes the rounding error of the first
                rows_VE /= torch.linalg.vector_norm(rows_VE, dim=1, keepdim=True).clamp_min(tiny)
            dtype = dtype or exact
            # On a GPU with the padding that its products take; see `padded_head`.
            multiple = _GPU_MULTIPLE if rows_VE.is_cuda and dtype != exact else 1
            self._rows_PE = padded_head(rows_VE, len(rows_VE), multiple, dtype)
            self.rows_VE = self._rows_PE[: len(rows_VE)]
        else:
            self.rows_VE = self._rows_PE = weight_VE.detach().to(device=device, dtype=dtype)
        norm_V = torch.linalg.vector_norm(self.rows_VE, dim=1, dtype=exact)
        self.inverse_norm_V = torch.where(norm_V > 0, 1 / norm_V, 0.0)
        self._normalised = copy
        self._unit = copy and self.rows_VE.dtype == exact
        self.slot_V: Tensor | None = None
        """For each token, the index of its kept cost row, or -1, on the CPU. None if no rows are kept."""
        self._kept: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.rows_VE)

    @property
    def zero_rows(self) -> int:
        """Number of rows that are 0, such as padding."""
        return int((self.inverse_norm_V == 0).sum())

    def first(self, vocabulary: int) -> CostEmbedding:
        """Return the cost embedding of the first `vocabulary` tokens; the others are padding. Memory is shared."""
        if vocabulary == len(self):
            return self
        part = object.__new__(CostEmbedding)
        part.rows_VE, part._rows_PE = self.rows_VE[:vocabulary], self._rows_PE
        part.inverse_norm_V = self.inverse_norm_V[:vocabulary]
        part._normalised, part._unit, part.slot_V, part._kept = self._normalised, self._unit, None, None
        return part

    def keep(self, tokens_K: Tensor) -> None:
        """Keep the cost rows of these tokens between calls. Each row takes 2 V or 4 V bytes; the values are exact.

        Use it for the most frequent target tokens. Their rows would otherwise be computed for every batch.
        """
        if not len(tokens_K):
            self.slot_V, self._kept = None, None
            return
        tokens_K = tokens_K.long().unique().cpu()
        self.slot_V = torch.full((len(self),), -1)
        self.slot_V[tokens_K] = torch.arange(len(tokens_K))
        self._kept = (tokens_K.to(self.rows_VE.device), self.rows_VE.new_empty(0))

    def kept_rows(self, dtype: torch.dtype, multiple: int = 1) -> Tensor | None:
        """Return the kept cost rows, (K, V), in the order of `slot_V`, or None.

        Rows are padded in memory to a multiple of `multiple` entries.
        """
        if self._kept is None:
            return None
        tokens_K, kept_KV = self._kept
        if kept_KV.dim() != 2 or kept_KV.dtype != dtype or kept_KV.stride(0) % multiple:
            kept_KV = self.costs(tokens_K, out=row_buffer(self.rows_VE, len(tokens_K), len(self), dtype, multiple))
            self._kept = (tokens_K, kept_KV)
        return kept_KV

    def costs(self, tokens_U: Tensor, *, out: Tensor | None = None) -> Tensor:
        """Return 1 - cos between each of `tokens_U` and every token, (U, V). Costs are at least 0, to itself exactly 0.

        If `out`, (U, V), is given, the costs are written to it and rounded once to its dtype.
        """
        exact = self.inverse_norm_V.dtype
        if out is None:
            out = self.rows_VE.new_empty(len(tokens_U), len(self), dtype=exact)
        if out.dtype == exact:
            return self._write_costs(tokens_U, out)
        if out.is_cuda and self._normalised and out.dtype == self.rows_VE.dtype and has_triton():
            # The product's epilogue rounds 1 - cos once, so almost equal tokens keep their digits. This needs rows of
            # length 1: for other lengths, 1 - <x, y> could round to exactly 1 or overflow.
            out_UP = whole_rows(out)
            rows_PE = self._rows_PE[: out_UP.shape[1]]
            torch.addmm(out.new_ones(len(rows_PE)), self.rows_VE[tokens_U], rows_PE.T, alpha=-1, out=out_UP)
            from emobench.objectives.engine.triton_rows import finish_costs

            finish_costs(out, tokens_U, self.inverse_norm_V)
            return out
        rows = max(1, _SLICE_BYTES // (4 * len(self)))
        for start in range(0, len(tokens_U), rows):
            part_S = tokens_U[start : start + rows]
            out[start : start + rows] = self._write_costs(part_S, out.new_empty(len(part_S), len(self), dtype=exact))
        return out

    def _write_costs(self, tokens_U: Tensor, out_UV: Tensor) -> Tensor:
        multiply_wide(self.rows_VE[tokens_U].neg_(), self.rows_VE, out_UV)
        if not self._unit:
            out_UV *= self.inverse_norm_V[tokens_U, None]
            out_UV *= self.inverse_norm_V
        return out_UV.add_(1).clamp_(min=0).scatter_(1, tokens_U[:, None], 0)

    def expected(self, probs_CV: Tensor) -> Tensor:
        """Return sum_w P(w) C(v, w) for every token v and each distribution P of a chunk, (C, V), in float32.

        Two products of width E replace the product with the V x V cost matrix. float64 rows give float64.
        """
        exact = self.inverse_norm_V.dtype
        probs_CV = probs_CV.to(exact)
        scaled_CV = probs_CV * self.inverse_norm_V
        mean_CE = scaled_CV @ self.rows_VE.to(exact)
        cost_CV = (mean_CE @ self.rows_VE.to(exact).T).mul_(self.inverse_norm_V)
        cost_CV = torch.sub(probs_CV.sum(dim=1, keepdim=True), cost_CV, out=cost_CV)
        # A zero row has cost 1 to every other token and cost 0 to itself.
        return cost_CV.sub_(probs_CV * (self.inverse_norm_V == 0)).clamp_(min=0)
