"""The cost rows that one chunk reads.

Legend: U distinct targets, K kept tokens, C tokens of a chunk, R rows of a block of it, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CostRows:
    """The cost rows of a chunk: one row for each distinct target, and the index from tokens to rows."""

    fresh_UV: Tensor
    """Rows computed for this chunk."""
    kept_KV: Tensor | None
    """Rows kept from an earlier call."""
    index_C: Tensor
    """For each token, its row in `fresh_UV`, or -1 - k for row k of `kept_KV`."""

    def each(self, rows: slice) -> list[Tensor]:
        """Return the cost row of each token of a block, each (V,), without a copy. Waits for the device."""
        kept = [] if self.kept_KV is None else self.kept_KV
        return [self.fresh_UV[i] if i >= 0 else kept[-1 - i] for i in self.index_C[rows].tolist()]

    def write(self, rows: slice, out_RV: Tensor) -> Tensor:
        """Write the cost rows of a block's tokens to `out_RV` and return it."""
        index_R = self.index_C[rows]
        if self.kept_KV is None:
            return torch.index_select(self.fresh_UV, 0, index_R, out=out_RV)
        kept_RV = self.kept_KV[(-1 - index_R).clamp(min=0)]
        if len(self.fresh_UV) == 0:
            return out_RV.copy_(kept_RV)
        return torch.where(index_R[:, None] < 0, kept_RV, self.fresh_UV[index_R.clamp(min=0)], out=out_RV)
