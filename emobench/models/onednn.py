"""Products with float32 weights on a CPU, by oneDNN.

torch calls another library for them, which takes up to an eighth longer for large weights (docs/evidence/speed.md).
These operations are those that torch's own compiler calls. They have no public name, so they may be absent.

Legend: X any leading dimensions, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def has_onednn() -> bool:
    """Say whether the operations exist here."""
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)


def takes(states: Tensor) -> bool:
    """Say whether oneDNN can take a tensor: float32 on a CPU, outside autocast."""
    return states.dtype == torch.float32 and states.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def pack(weight_OI: Tensor) -> Tensor:
    """Return a copy of a weight in oneDNN's layout, for `product`. Its values can no longer be read."""
    operations: Any = torch.ops.mkldnn
    return operations._reorder_linear_weight(weight_OI.detach(), None)


def product(rows_XI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return rows @ weight.T + bias. The weight is packed, or contiguous as it is. No gradient flows."""
    operations: Any = torch.ops.mkldnn
    return operations._linear_pointwise(rows_XI, weight_OI, bias_O, "none", [], "")
