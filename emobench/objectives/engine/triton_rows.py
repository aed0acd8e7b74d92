"""The two elementwise passes of the engine as Triton kernels, with the interface of `torch_rows.py`.

Legend: C tokens of a chunk, U distinct targets, V vocabulary, P padded vocabulary, D hidden width.

The buffer of a chunk contains the head's raw output in the dtype of the matrix product (float32, bfloat16 or float16).
The gradient overwrites it in the same dtype, and the next products read it. Logits and cost rows come from
`row_buffer`. Statistics are float32.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from emobench.models.head import LogitMap
from emobench.objectives.engine import triton_kernels
from emobench.objectives.engine.coefficients import Coefficients
from emobench.objectives.engine.products import multiply_wide, padded, whole_rows
from emobench.objectives.engine.torch_rows import CostRows, TorchRows

kernels: Any = triton_kernels  # a type checker does not know the syntax of a kernel launch

OUTPUTS = ("log_prob", "log_partition", "expected_cost", "entropy", "mean_log_prob", "sum_squares", "alternatives")
"""The rows of the output of `reduce_kernel`."""
REDUCE_BLOCK, DIFFERENTIATE_BLOCK = 4096, 2048
"""Number of vocabulary entries that a program processes at once."""
REDUCE_WARPS, DIFFERENTIATE_WARPS = 4, 4
REDUCE_LANES = 1024
"""Number of partial sums of a row: eight for each of a program's threads, which loads eight entries at once."""
SCALE_BLOCK = 2048
SCALE_BLOCKS = 8
"""Blocks that a program scales: few programs, which end at once where the scale is 1."""


class TritonRows(TorchRows):
    """The passes as GPU kernels."""

    row_multiple = 128
    """Rows begin at multiples of 256 bytes for any vocabulary: the matrix products then use their fast kernels."""
    head_multiple = row_multiple

    @staticmethod
    def logits_dtype(dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the logits: the dtype of the matrix products."""
        return dtype

    @staticmethod
    def cost_dtype(dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of cost rows. With half precision it is float16: below 2 it is finer than bfloat16."""
        return torch.float32 if dtype == torch.float32 else torch.float16

    @staticmethod
    def make_logits(
        hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, map_: LogitMap, out_CV: Tensor
    ) -> None:
        """Write the head's raw output for a chunk, in the dtype of the products or wider. The kernels scale it.

        Head and bias come from `padded_head`, and the padding of the rows is written, too.
        """
        out_CP = whole_rows(out_CV)
        if out_CP.dtype != hidden_CD.dtype:
            multiply_wide(hidden_CD, weight_VD, out_CP)
            if bias_V is not None:
                out_CP += bias_V
        elif bias_V is None:
            torch.mm(hidden_CD, weight_VD.T, out=out_CP)
        else:
            torch.addmm(bias_V, hidden_CD, weight_VD.T, out=out_CP)

    @staticmethod
    def reduce(
        logits_CV: Tensor, targets_C: Tensor, costs: CostRows | None, needs: frozenset[str], map_: LogitMap
    ) -> dict[str, Tensor]:
        """Return `log_prob`, `log_partition` and the statistics in `needs`, each (C,)."""
        tokens, vocabulary = logits_CV.shape
        out = logits_CV.new_empty(len(OUTPUTS), tokens, dtype=torch.float32)
        squares = bool(needs & {"sum_squares", "alternatives"})
        fresh_UV, kept_KV, index_C, has_kept = _tables(costs, logits_CV, targets_C)
        if tokens:
            with torch.cuda.device_of(logits_CV):
                kernels.reduce_kernel[(tokens,)](
                    logits_CV,
                    targets_C,
                    fresh_UV,
                    kept_KV,
                    index_C,
                    out,
                    tokens,
                    vocabulary,
                    logits_CV.stride(0),
                    fresh_UV.stride(0),
                    kept_KV.stride(0),
                    WIDTH=padded(vocabulary, TritonRows.row_multiple),
                    **_map_arguments(map_),
                    HAS_COST="expected_cost" in needs,
                    HAS_KEPT=has_kept,
                    HAS_ENTROPY="entropy" in needs,
                    HAS_SQUARES=squares,
                    HAS_MEAN="mean_log_prob" in needs,
                    BLOCK=REDUCE_BLOCK,
                    LANES=REDUCE_LANES,
                    num_warps=REDUCE_WARPS,
                )
        names = {"log_prob", "log_partition", *needs} | ({"sum_squares", "alternatives"} if squares else set())
        return {name: row for name, row in zip(OUTPUTS, out, strict=True) if name in names}

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
        tokens, vocabulary = logits_CV.shape
        width = padded(vocabulary, TritonRows.row_multiple)
        blocks = -(-width // DIFFERENTIATE_BLOCK)
        squares_CB = logits_CV.new_empty(tokens, blocks, dtype=torch.float32)
        if not tokens:
            return squares_CB.sum(dim=1)
        if numbers.cost_C is None:
            costs = None
        fresh_UV, kept_KV, index_C, has_kept = _tables(costs, logits_CV, targets_C)
        factors = []
        for factor_C in (numbers.cost_C, numbers.log_q_C, numbers.q_C, numbers.shift_C):
            factors.append(numbers.base_C if factor_C is None else factor_C)  # unused
        with torch.cuda.device_of(logits_CV):
            kernels.differentiate_kernel[(tokens, blocks)](
                logits_CV,
                targets_C,
                fresh_UV,
                kept_KV,
                index_C,
                log_partition_C,
                numbers.base_C,
                numbers.target_C,
                *factors,
                squares_CB,
                vocabulary,
                logits_CV.stride(0),
                fresh_UV.stride(0),
                kept_KV.stride(0),
                WIDTH=width,
                **_map_arguments(map_),
                HAS_COST=costs is not None,
                HAS_KEPT=has_kept,
                HAS_LOG_Q=numbers.log_q_C is not None,
                HAS_Q=numbers.q_C is not None,
                HAS_SHIFT=numbers.shift_C is not None,
                BLOCK=DIFFERENTIATE_BLOCK,
                num_warps=DIFFERENTIATE_WARPS,
            )
        return squares_CB.sum(dim=1)


def _tables(costs: CostRows | None, logits_CV: Tensor, targets_C: Tensor) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Return both tables of cost rows, the index into them, and whether the second one is used.

    Unused arguments of a kernel may be any tensor.
    """
    if costs is None:
        return logits_CV, logits_CV, targets_C, False
    if costs.kept_KV is None:
        return costs.fresh_UV, costs.fresh_UV, costs.index_C, False
    return costs.fresh_UV, costs.kept_KV, costs.index_C, True


def finish_costs(rows_UV: Tensor, tokens_U: Tensor, inverse_norm_V: Tensor) -> None:
    """Turn 1 - <x_t, x_v>, (U, V), into costs in place; see `finish_costs_kernel`."""
    vocabulary = rows_UV.shape[1]
    if not len(rows_UV):
        return
    width = padded(vocabulary, TritonRows.row_multiple)
    with torch.cuda.device_of(rows_UV):
        kernels.finish_costs_kernel[(len(rows_UV), -(-width // DIFFERENTIATE_BLOCK))](
            rows_UV, tokens_U, inverse_norm_V, vocabulary, rows_UV.stride(0), WIDTH=width, BLOCK=DIFFERENTIATE_BLOCK
        )


def scaled(values: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """Return contiguous values times a float32 scalar in another dtype; of the same dtype, in place.

    torch.mul with such a scalar takes five times as long for bfloat16 (H200, 131 million numbers: 0.6 ms).
    """
    out = values if values.dtype == dtype else torch.empty_like(values, dtype=dtype)
    if values.numel():
        with torch.cuda.device_of(values):
            kernels.scale_kernel[(-(-values.numel() // (SCALE_BLOCK * SCALE_BLOCKS)),)](
                values, scale, out, values.numel(), IN_PLACE=out is values, BLOCK=SCALE_BLOCK, BLOCKS=SCALE_BLOCKS
            )
    return out


def place_scaled(rows_MD: Tensor, places_M: Tensor, scale: Tensor, out_ND: Tensor) -> None:
    """Write contiguous rows times a float32 scalar to their places, each to another one, in the dtype of `out_ND`."""
    rows, width = rows_MD.shape
    if rows:
        with torch.cuda.device_of(rows_MD):
            kernels.place_scaled_kernel[(rows, -(-width // SCALE_BLOCK))](
                rows_MD, places_M, scale, out_ND, width, BLOCK=SCALE_BLOCK
            )


def _map_arguments(map_: LogitMap) -> dict[str, float]:
    return {"SCALE": float(map_.scale), "CAP": float(map_.cap or 0.0)}
