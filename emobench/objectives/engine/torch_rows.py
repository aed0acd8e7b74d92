"""The two elementwise passes of the engine in PyTorch, on any device: logits -> statistics, and logits -> gradient.

Legend: C tokens of a chunk, R rows of a block of it, U distinct targets, K kept cost rows, V vocabulary, D hidden
width. All values are float32 (float64 for float64 inputs). `triton_rows.py` has the same passes as GPU kernels.
`statistics.py` has the same quantities as plain equations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from emobench.models.head import LogitMap
from emobench.objectives.engine.coefficients import Coefficients
from emobench.objectives.engine.products import accumulator_dtype, concatenated, multiply_wide

BLOCK_BYTES = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Size of the blocks of rows in the elementwise passes. On a CPU, a block fits into the cache."""

PRODUCT_ROWS = 128
"""Rows of a product that makes its own memory: so little of it that the C library keeps it for the next one."""
_LONG_ROW = 4096
_LOG2_E = math.log2(math.e)
_TINY_TARGET = 1e-20  # of the largest logit's mass; below it, log1p(rest / target) overflows or loses digits


Product = Callable[[Tensor], Tensor]
"""(C, D) -> (C, V or more)."""


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
        each = []
        for index in self.index_C[rows].tolist():
            if self.kept_KV is None or index >= 0:
                each.append(self.fresh_UV[index])
            else:
                each.append(self.kept_KV[-1 - index])
        return each

    def write(self, rows: slice, out_RV: Tensor) -> Tensor:
        """Write the cost rows of a block's tokens to `out_RV` and return it."""
        index_R = self.index_C[rows]
        if self.kept_KV is None:
            return torch.index_select(self.fresh_UV, 0, index_R, out=out_RV)
        kept_RV = self.kept_KV[(-1 - index_R).clamp(min=0)]
        if len(self.fresh_UV) == 0:
            return out_RV.copy_(kept_RV)
        return torch.where(index_R[:, None] < 0, kept_RV, self.fresh_UV[index_R.clamp(min=0)], out=out_RV)


class TorchRows:
    """The passes in PyTorch. The buffer of a chunk contains the final logits, after the head's scale and cap."""

    row_multiple = 16
    """The length of the buffers' rows is a multiple of this number of entries. Rows that begin within a cache line, as
    those of an odd vocabulary do, would slow a CPU's matrix product by a third."""
    head_multiple = 1
    """Products take the rows of the head up to a multiple of this number. `differentiate` writes 0 for those that are
    padding."""

    @staticmethod
    def logits_dtype(dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the logits for matrix products in `dtype`."""
        return accumulator_dtype(dtype)

    @staticmethod
    def cost_dtype(dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of cost rows."""
        return accumulator_dtype(dtype)

    @staticmethod
    def make_logits(
        hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, map_: LogitMap, out_CV: Tensor
    ) -> None:
        """Write the logits of a chunk. The inputs have one dtype."""
        multiply_wide(hidden_CD, weight_VD, out_CV)
        if bias_V is not None:
            out_CV.add_(bias_V)
        _map_in_place(map_, out_CV)

    @staticmethod
    def reduce(
        logits_CV: Tensor, targets_C: Tensor, costs: CostRows | None, needs: frozenset[str], map_: LogitMap
    ) -> dict[str, Tensor]:
        """Return `log_prob`, `log_partition` and the statistics in `needs`, each (C,)."""
        scratch = _scratch(logits_CV)
        blocks = [
            reduce_rows(logits_CV[rows], targets_C[rows], costs, needs, rows, scratch) for rows in _blocks(logits_CV)
        ]
        return concatenated(blocks)

    @staticmethod
    def differentiate(
        logits_CV: Tensor,
        targets_C: Tensor,
        costs: CostRows | None,
        log_partition_C: Tensor,
        numbers: Coefficients,
        map_: LogitMap,
    ) -> Tensor:
        """Overwrite the logits of a chunk with d loss / d raw output of the head.

        Return the sum of squares of each token's d loss / d logits, (C,).
        """
        scratch, squares = _scratch(logits_CV), []
        for rows in _blocks(logits_CV):
            block_RV = logits_CV[rows]
            slope = map_slope(map_, block_RV)
            q_RV = _exp_in_place(block_RV.sub_(log_partition_C[rows, None]))
            factor_RV = numbers.base_C[rows, None]
            if costs is not None and numbers.cost_C is not None:
                factor_RV = _scaled_costs(costs, numbers.cost_C[rows], factor_RV[:, 0], rows, scratch[0][: len(q_RV)])
            if numbers.q_C is not None:
                factor_RV = torch.mul(q_RV, numbers.q_C[rows, None], out=scratch[1][: len(q_RV)]).add_(factor_RV)
            # -q log q = entr(q) is 0 at q = 0, but log q is -inf: this term is added apart.
            if numbers.log_q_C is not None:
                spread_RV = torch.special.entr(q_RV).mul_(-numbers.log_q_C[rows, None])
                q_RV.mul_(factor_RV).add_(spread_RV)
            else:
                q_RV.mul_(factor_RV)
            if numbers.shift_C is not None:
                q_RV.add_(numbers.shift_C[rows, None])
            q_RV.scatter_(1, targets_C[rows, None], numbers.target_C[rows, None])
            squares.append(square_sums(block_RV, scratch[0][: len(block_RV)]))
            if slope is not None:
                block_RV.mul_(slope)
        return torch.cat(squares)


def logits_by_product(product: Product, hidden_CD: Tensor, map_: LogitMap, out_CV: Tensor) -> None:
    """Write the logits of a chunk by the head's own product, bias included; columns beyond `out_CV` are padding."""
    for first in range(0, len(hidden_CD), PRODUCT_ROWS):
        rows = slice(first, first + PRODUCT_ROWS)
        out_CV[rows] = product(hidden_CD[rows])[:, : out_CV.shape[1]]
    _map_in_place(map_, out_CV)


def _map_in_place(map_: LogitMap, out_CV: Tensor) -> None:
    if map_.scale != 1.0:
        out_CV.mul_(map_.scale)
    if map_.cap is not None:
        out_CV.div_(map_.cap).tanh_().mul_(map_.cap)


def _scratch(logits_CV: Tensor) -> tuple[Tensor, Tensor]:
    """Return two blocks of rows, (R, V), for all steps of a pass. New memory for each would take as long as it."""
    largest_RV = logits_CV[_blocks(logits_CV)[0]]
    return torch.empty_like(largest_RV), torch.empty_like(largest_RV)


def reduce_rows(
    logits_RV: Tensor,
    targets_R: Tensor,
    costs: CostRows | None,
    needs: frozenset[str],
    rows: slice,
    scratch: tuple[Tensor, Tensor],
) -> dict[str, Tensor]:
    """Return the statistics of a block of logits, each (R,). `rows` is the block's slice of its chunk.

    Every sum leaves out the target's own mass, which is added in closed form. Then log_prob = -log1p(rest / target)
    keeps its digits where q_t is almost 1, and `expected_cost` is a sum of non-negative terms without cancellation.
    """
    top_R = logits_RV.amax(dim=1)
    target_logit_R = logits_RV.gather(1, targets_R[:, None])[:, 0]
    mass_RV = _exp_in_place(torch.sub(logits_RV, top_R[:, None], out=scratch[0][: len(logits_RV)]))
    product_RV = scratch[1][: len(logits_RV)]
    target_mass_R = (target_logit_R - top_R).exp()
    mass_RV.scatter_(1, targets_R[:, None], 0)
    rest_R = mass_RV.sum(dim=1)
    total_R = rest_R + target_mass_R
    log_partition_R = top_R + total_R.log()
    log_prob_R = torch.where(
        target_mass_R > _TINY_TARGET, -torch.log1p(rest_R / target_mass_R), target_logit_R - log_partition_R
    )
    values = {"log_prob": log_prob_R, "log_partition": log_partition_R}
    if "expected_cost" in needs:
        assert costs is not None
        values["expected_cost"] = _cost_sums(mass_RV, costs, rows, product_RV) / total_R
    if "mean_log_prob" in needs:
        values["mean_log_prob"] = logits_RV.mean(dim=1) - log_partition_R
    if needs & {"sum_squares", "alternatives"}:
        squares_R = square_sums(mass_RV, product_RV)
        values["sum_squares"] = squares_R / total_R**2 + log_prob_R.exp() ** 2
        values["alternatives"] = torch.where(squares_R > 0, rest_R**2 / squares_R, 0.0)
    if "entropy" in needs:
        # entr(0) = 0, so a logit of -inf is allowed.
        mass_RV /= total_R[:, None]
        values["entropy"] = torch.special.entr(mass_RV, out=product_RV).sum(dim=1) - log_prob_R * log_prob_R.exp()
    return values


def _exp_in_place(rows_RV: Tensor) -> Tensor:
    """Return e to the power of each entry. The base 2 takes a third of the time of `exp_`, and rounds once more."""
    return rows_RV.mul_(_LOG2_E).exp2_()


def square_sums(rows_RV: Tensor, scratch_RV: Tensor | None = None) -> Tensor:
    """Return the sum of squares of each row, (R,)."""
    if _row_by_row(rows_RV):
        return torch.stack([row_V.dot(row_V) for row_V in rows_RV])
    return torch.mul(rows_RV, rows_RV, out=scratch_RV).sum(dim=1)


def _cost_sums(mass_RV: Tensor, costs: CostRows, rows: slice, product_RV: Tensor) -> Tensor:
    """Return sum_v mass_v c_v of each row, (R,)."""
    if _row_by_row(mass_RV):
        return torch.stack([mass_V.dot(cost_V) for mass_V, cost_V in zip(mass_RV, costs.each(rows), strict=True)])
    return costs.write(rows, product_RV).mul_(mass_RV).sum(dim=1)


def _scaled_costs(costs: CostRows, slope_R: Tensor, base_R: Tensor, rows: slice, out_RV: Tensor) -> Tensor:
    """Write slope c_v + base of each row, (R, V), and return it."""
    if _row_by_row(out_RV):
        for out_V, base, slope, cost_V in zip(out_RV, base_R, slope_R.tolist(), costs.each(rows), strict=True):
            torch.add(base, cost_V, alpha=slope, out=out_V)
        return out_RV
    # Two steps in the cache take half the time of one addcmul.
    return costs.write(rows, out_RV).mul_(slope_R[:, None]).add_(base_R[:, None])


def _row_by_row(rows_RV: Tensor) -> bool:
    """Return whether to process rows one by one. For long rows on a CPU this saves a copy of the cost rows."""
    return len(rows_RV) > 0 and rows_RV.device.type == "cpu" and rows_RV.shape[1] >= _LONG_ROW


def map_slope(map_: LogitMap, logits_RV: Tensor) -> Tensor | float | None:
    """Return d logit / d raw output, computed from the logits. None if it is 1."""
    if map_.cap is None:
        return None if map_.scale == 1.0 else map_.scale
    return (logits_RV / map_.cap).square_().neg_().add_(1).mul_(map_.scale)


def _blocks(logits_CV: Tensor) -> list[slice]:
    """Return the slices of rows for the passes. A chunk without tokens has one empty slice."""
    budget = BLOCK_BYTES.get(logits_CV.device.type, BLOCK_BYTES["cpu"])
    rows = max(1, budget // (logits_CV.element_size() * logits_CV.shape[1]))
    return [slice(start, start + rows) for start in range(0, max(1, len(logits_CV)), rows)]
