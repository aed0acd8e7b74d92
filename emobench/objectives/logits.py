"""From hidden states to logits, in place, and the dtypes in which the engine works.

Legend: C tokens of a chunk, R rows of a block, V vocabulary, D hidden width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from emobench.models.head import LogitMap
from emobench.objectives.products import multiply_wide
from emobench.objectives.targets import Targets


def compute_dtype(hidden_ND: Tensor, weight_VD: Tensor) -> torch.dtype:
    """Return the dtype of the matrix products: autocast's where it is on, else that of the head."""
    kind = hidden_ND.device.type
    if torch.is_autocast_enabled(kind) and weight_VD.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return weight_VD.dtype


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of statistics, losses and the sums of gradients."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def chunk_buffer(targets: Targets, weight_VD: Tensor, *, with_cost: bool) -> Tensor:
    """Return uninitialised memory for the logits of any chunk, and behind them its cost rows; accumulator's dtype."""
    rows = max(chunk.stop - chunk.start + with_cost * len(chunk.distinct_U) for chunk in targets.chunks)
    return weight_VD.new_empty(rows, len(weight_VD), dtype=accumulator_dtype(weight_VD.dtype))


def make_logits(
    hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, logit_map: LogitMap, *, out: Tensor
) -> Tensor:
    """Return the logits of a chunk, (C, V), written to the first C rows of `out`; the inputs share one dtype."""
    logits_CV = out[: len(hidden_CD)]
    multiply_wide(hidden_CD, weight_VD, logits_CV)
    if bias_V is not None:
        logits_CV.add_(bias_V)
    if logit_map.scale != 1.0:
        logits_CV.mul_(logit_map.scale)
    if logit_map.cap is not None:
        logits_CV.div_(logit_map.cap).tanh_().mul_(logit_map.cap)
    return logits_CV


def map_slope(logit_map: LogitMap, logits_RV: Tensor) -> Tensor | float | None:
    """Return d logit / d raw logit, read off the logits themselves; None where it is 1."""
    if logit_map.cap is None:
        return None if logit_map.scale == 1.0 else logit_map.scale
    return (logits_RV / logit_map.cap).square_().neg_().add_(1).mul_(logit_map.scale)
