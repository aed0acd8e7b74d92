"""How torch's FlopCounterMode counts the products that it does not know, or not in every dtype: its custom_mapping."""

from __future__ import annotations

import math
from typing import Any

import torch

Shape = tuple[int, ...]


def _addmm(sum_shape: Shape, left: Shape, right: Shape, *args: Any, **kwargs: Any) -> int:
    # torch's own formula fails for a product whose result has a wider dtype.
    return 2 * left[0] * left[1] * right[1]


def _linear(rows: Shape, weight: Shape, *args: Any, **kwargs: Any) -> int:
    return 2 * math.prod(rows) * weight[0]


FLOP_FORMULAS = {torch.ops.aten.addmm: _addmm, torch.ops.mkldnn._linear_pointwise: _linear}
