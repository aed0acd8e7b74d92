"""Products with the weights of a model that is only read on a CPU.

torch brings a float32 weight into a layout for the caches at each product; oneDNN can keep that layout
(docs/evidence/speed.md has what it gains). The operations are those that torch's own compiler calls for frozen weights,
and have no public name. Where they are absent, nothing changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

SHARE = 1 / 8
"""Of the machine's memory: what the copies take at most."""


def prepack(model: Any) -> None:
    """Give the linear layers of a float32 model on a CPU a copy of their weights in oneDNN's layout.

    The model's weights must not change afterwards, and get no gradient. Nothing is done on another device, in another
    precision, or where the copies would take more than `SHARE` of the machine's memory.
    """
    layers = [layer for layer in model.modules() if _is_packable(layer)]
    if not _has_onednn() or sum(layer.weight.nbytes for layer in layers) > SHARE * _machine_memory():
        return
    model.requires_grad_(False)
    for layer in layers:
        layer.forward = _product(layer)


def _is_packable(layer: nn.Module) -> bool:
    """Say whether a layer is a plain product: a class that derives from these may do more."""
    weight: Any = getattr(layer, "weight", None)
    return type(layer) in (nn.Linear, Conv1D) and weight.device.type == "cpu" and weight.dtype == torch.float32


def _product(layer: Any) -> Callable[[Tensor], Tensor]:
    """Return what takes the place of a layer's `forward`."""
    plain, bias = layer.forward, layer.bias
    weight_OI = layer.weight if isinstance(layer, nn.Linear) else layer.weight.t().contiguous()
    operations: Any = torch.ops.mkldnn
    packed = operations._reorder_linear_weight(weight_OI.detach(), None)

    def product(rows_XI: Tensor) -> Tensor:
        single = rows_XI.numel() <= rows_XI.shape[-1]  # a product with one row is no faster
        other = rows_XI.dtype != torch.float32 or rows_XI.device.type != "cpu"  # the model was moved
        if single or other or torch.is_autocast_enabled("cpu") or rows_XI.requires_grad:
            return plain(rows_XI)
        return operations._linear_pointwise(rows_XI, packed, bias, "none", [], "")

    return product


def _has_onednn() -> bool:
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
