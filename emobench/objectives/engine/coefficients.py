"""From d loss / d statistic to d loss / d logits: six numbers per token are enough for every objective.

Legend: C tokens of a chunk, V vocabulary.

From the table in `statistics.py`, with slopes a (log_prob), b (expected_cost), h (entropy), l (log_partition),
m (mean_log_prob) and s (sum_squares), the gradient of each entry except the target's is

    dz_v = q_v (base + b c_v - h log q_v + 2 s q_v) + m / V,    base = -a - b u - h H + l - m - 2 s sum_w q_w^2

At the target c = 0, and a is added. Its gradient is a (1 - q_t) + q_t (base + a - h log q_t + 2 s q_t) + m / V. Here
1 - q_t is computed as -expm1(log q_t): the difference would lose all digits where q_t is almost 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of d loss / d logits of a chunk, each (C,). None if it is 0 for every token."""

    base_C: Tensor
    cost_C: Tensor | None
    log_q_C: Tensor | None
    q_C: Tensor | None
    shift_C: Tensor | None
    """m / V, added to every entry."""
    target_C: Tensor
    """The complete derivative by the target's logit."""


def coefficients(values: Mapping[str, Tensor], slopes: Mapping[str, Tensor], vocabulary: int) -> Coefficients:
    """Return the coefficients of a chunk from its statistics and d loss / d statistic, each (C,)."""
    log_prob_C = values["log_prob"]
    target_q_C = log_prob_C.exp()
    cost_C = slopes.get("expected_cost")
    log_q_C = -slopes["entropy"] if "entropy" in slopes else None
    q_C = 2 * slopes["sum_squares"] if "sum_squares" in slopes else None
    base_C = torch.zeros_like(log_prob_C)
    if cost_C is not None:
        base_C -= cost_C * values["expected_cost"]
    if log_q_C is not None:
        base_C += log_q_C * values["entropy"]
    if q_C is not None:
        base_C -= q_C * values["sum_squares"]
    if "log_partition" in slopes:
        base_C += slopes["log_partition"]
    shift_C = None
    if "mean_log_prob" in slopes:
        base_C -= slopes["mean_log_prob"]
        shift_C = slopes["mean_log_prob"] / vocabulary
    factor_C = base_C
    if log_q_C is not None:
        factor_C = factor_C + log_q_C * log_prob_C
    if q_C is not None:
        factor_C = factor_C + q_C * target_q_C
    target_C = target_q_C * factor_C
    if "log_prob" in slopes:
        target_C = target_C - slopes["log_prob"] * torch.expm1(log_prob_C)
        base_C = base_C - slopes["log_prob"]
    if shift_C is not None:
        target_C = target_C + shift_C
    return Coefficients(base_C, cost_C, log_q_C, q_C, shift_C, target_C)
