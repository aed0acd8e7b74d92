"""A model that is only read: the same numbers to rounding, in less time, mostly for float32 on a CPU.

torch brings a float32 weight into a layout for the caches at each product; oneDNN can keep that layout
(docs/evidence/speed.md has what it gains). Where oneDNN is absent, products stay as they are.

transformers writes the GELU of GPT-2 and GPT-Neo as eight operations, each of which goes over memory; torch has it as
one. Measured with a GPT-2 of width 384 and 12 layers: a fifth of the time of reading a prompt became a twentieth. On a
GPU it is one launch in place of eight, and half precision is rounded once.

The gated MLP of LLaMA and its successors writes four large results, and needs memory for two: new memory of that size
comes from the system, page by page. Measured with SmolLM2 and 1,500 tokens: the first half of an MLP takes 0.82 of its
time where activation and gate are applied in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import FastGELUActivation, GELUTanh, NewGELUActivation, SiLUActivation
from transformers.pytorch_utils import Conv1D

from emobench.models import onednn
from emobench.models.device import machine_memory

GATED = {"gate_proj", "up_proj", "down_proj", "act_fn"}
"""The parts of a gated MLP in transformers."""
IN_PLACE: dict[type, Callable[[Tensor], Tensor]] = {
    nn.SiLU: partial(F.silu, inplace=True),
    SiLUActivation: partial(F.silu, inplace=True),
    GELUTanh: partial(torch.ops.aten.gelu_, approximate="tanh"),
}

SHARE = 1 / 8
"""Of the machine's memory: what the copies of weights take at most."""


def optimize_for_inference(model: Any) -> None:
    """Give a model that is only read faster products with float32 weights on a CPU, a padded head in half precision on
    a GPU, and cheaper activations.

    The weights get no gradient. Products stay as they are on another device, in another precision, where the copies of
    weights would take more than `SHARE` of the machine's memory, and where a weight changed or was copied since.
    """
    for module in model.modules():
        if type(module) in (NewGELUActivation, FastGELUActivation):
            module.forward = _gelu(module)
    _pad_head(model)
    layers = [layer for layer in model.modules() if _is_packable(layer)]
    if not onednn.has_onednn() or sum(layer.weight.nbytes for layer in layers) > SHARE * machine_memory():
        return
    model.requires_grad_(False)
    for layer in layers:
        layer.forward = layer.packed_product = MethodType(_product(layer), layer)
    _apply_gates_in_place(model)


def _pad_head(model: Any) -> None:
    """Give a head in half precision on a GPU a copy of its weight with a whole number of 64 rows.

    With GPT-2's 50,257 rows the product takes several times as long as with 50,304 (docs/evidence/speed.md).
    """
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if type(head) is not nn.Linear or "forward" in vars(head) or head.bias is not None or not head.out_features % 8:
        return
    weight, version = head.weight, head.weight._version
    if not weight.is_cuda or weight.dtype not in (torch.float16, torch.bfloat16):
        return
    padded_PD = F.pad(weight.detach(), (0, 0, 0, -len(weight) % 64))

    def product(head: nn.Linear, rows_XD: Tensor) -> Tensor:
        same = head.weight is weight and weight._version == version and rows_XD.dtype == weight.dtype
        if not same or rows_XD.requires_grad:
            return nn.Linear.forward(head, rows_XD)
        return F.linear(rows_XD, padded_PD)[..., : head.out_features]

    head.forward = MethodType(product, head)


def _gelu(activation: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return what takes the place of an activation's `forward`: the same function, GELU by tanh."""
    plain = activation.forward

    def gelu(rows_XF: Tensor) -> Tensor:
        takes = rows_XF.is_cuda or onednn.takes(rows_XF)
        return F.gelu(rows_XF, approximate="tanh") if takes else plain(rows_XF)

    return gelu


def _apply_gates_in_place(model: Any) -> None:
    """Replace the `forward` of each MLP that is down(act(gate(x)) * up(x)) and computes nothing else."""
    same: dict[tuple[type, type], bool] = {}
    for mlp in filter(_has_gate, model.modules()):
        in_place, classes = MethodType(_gated, mlp), (type(mlp), type(mlp.act_fn))
        if classes not in same:
            rows_2D = torch.linspace(-1, 1, 2 * mlp.gate_proj.in_features).reshape(2, -1)
            same[classes] = torch.equal(in_place(rows_2D), mlp(rows_2D))
        if same[classes]:
            mlp.forward = in_place


def _has_gate(module: Any) -> bool:
    parts = dict(module.named_children())
    return parts.keys() == GATED and type(module.act_fn) in IN_PLACE and hasattr(module.gate_proj, "packed_product")


def _gated(mlp: Any, states_XD: Tensor) -> Tensor:
    """What takes the place of a gated MLP's `forward`: the same values, in the memory of two products."""
    gate_XI = mlp.gate_proj(states_XD)
    if gate_XI.requires_grad:  # a copy that is trained
        return type(mlp).forward(mlp, states_XD)
    return mlp.down_proj(IN_PLACE[type(mlp.act_fn)](gate_XI).mul_(mlp.up_proj(states_XD)))


def _is_packable(layer: nn.Module) -> bool:
    """Say whether a layer is a plain product: a class that derives from these may do more."""
    weight: Any = getattr(layer, "weight", None)
    plain = type(layer) in (nn.Linear, Conv1D) and "forward" not in vars(layer)
    return plain and weight.device.type == "cpu" and weight.dtype == torch.float32


def _product(layer: Any) -> Callable[[Any, Tensor], Tensor]:
    """Return what takes the place of a layer's `forward`, as a function of the layer and its input.

    A copy of the layer has other weights than those that were packed, and computes with its own.
    """
    weight, version = layer.weight, layer.weight._version
    packed = onednn.pack(weight if isinstance(layer, nn.Linear) else weight.t().contiguous())

    def product(layer: Any, rows_XI: Tensor) -> Tensor:
        is_packed = layer.weight is weight and weight._version == version
        single = rows_XI.numel() <= rows_XI.shape[-1]  # a product with one row is no faster
        # The model may have been moved since, or be in autocast.
        if single or not is_packed or not onednn.takes(rows_XI) or rows_XI.requires_grad:
            return type(layer).forward(layer, rows_XI)
        return onednn.product(rows_XI, packed, layer.bias)

    return product
