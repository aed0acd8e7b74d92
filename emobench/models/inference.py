"""A model that is only read, in float32 on a CPU: the same numbers to float32's rounding, in less time.

torch brings a float32 weight into a layout for the caches at each product; oneDNN can keep that layout
(docs/evidence/speed.md has what it gains). The operations are those that torch's own compiler calls for frozen weights,
and have no public name. Where they are absent, products stay as they are.

transformers writes the GELU of GPT-2 and GPT-Neo as eight operations, each of which goes over memory; torch has it as
one. Measured with a GPT-2 of width 384 and 12 layers: a fifth of the time of reading a prompt became a twentieth.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import FastGELUActivation, NewGELUActivation
from transformers.pytorch_utils import Conv1D

SHARE = 1 / 8
"""Of the machine's memory: what the copies of weights take at most."""


def optimize_for_inference(model: Any) -> None:
    """Give a model that is only read faster products with its float32 weights on a CPU, and a GELU of one operation.

    The model's weights must not change afterwards, and get no gradient. Products stay as they are on another device, in
    another precision, or where the copies would take more than `SHARE` of the machine's memory.
    """
    for module in model.modules():
        if type(module) in (NewGELUActivation, FastGELUActivation):
            module.forward = _gelu(module)
    layers = [layer for layer in model.modules() if _is_packable(layer)]
    if not _has_onednn() or sum(layer.weight.nbytes for layer in layers) > SHARE * _machine_memory():
        return
    model.requires_grad_(False)
    for layer in layers:
        layer.forward = layer.packed_product = _product(layer)


def _gelu(activation: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return what takes the place of an activation's `forward`: the same function, GELU by tanh."""
    plain = activation.forward

    def gelu(rows_XF: Tensor) -> Tensor:
        return F.gelu(rows_XF, approximate="tanh") if _is_plain(rows_XF) else plain(rows_XF)

    return gelu


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
        if single or not _is_plain(rows_XI) or rows_XI.requires_grad:
            return plain(rows_XI)
        return operations._linear_pointwise(rows_XI, packed, bias, "none", [], "")

    return product


def _is_plain(states: Tensor) -> bool:
    """Say whether an input is still float32 on a CPU: the model may have been moved, or be in autocast."""
    return states.dtype == torch.float32 and states.device.type == "cpu" and not torch.is_autocast_enabled("cpu")


def _has_onednn() -> bool:
    names = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in names)


def _machine_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
