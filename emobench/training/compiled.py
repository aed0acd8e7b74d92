"""The attached loss as one opaque operator, so that `torch.compile` compiles the whole model without a graph break.

Legend: B sequences, T positions, V rows of the head, D hidden width.

torch.compile cannot trace the loss: it calls a plugin's Python, and its chunks depend on the labels. In a compiled
graph the operator is one node with known result shapes. Its forward computes the gradients and its backward scales
them. The stored gradients are multiplied by the number of tokens of the micro-batch: after a division by a large
denominator, and before a GradScaler's factor, most of them would underflow in float16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from emobench.objectives.engine.products import compute_dtype

_ATTACHED: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Attached objectives by number, because an operator takes only tensors and numbers."""


def _autograd_inside() -> Any:
    """Enable autograd again: operators run below it, but the engine needs it for d loss / d statistic."""
    without = torch._C._dispatch_tls_local_exclude_set()
    for name in ("AutogradOther", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView"):
        without = without.remove(getattr(torch._C.DispatchKey, name))
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), without)


def register_attached(attached: Any) -> int:
    """Register an attached objective. Return the number under which the operator finds it."""
    number = id(attached)
    _ATTACHED[number] = attached
    return number


def compiled_loss(
    attached: int, hidden_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, training: bool
) -> Tensor:
    """Return the loss of the last prepared micro-batch, a scalar with gradients."""
    needs_grad = [t is not None and t.requires_grad for t in (hidden_BTD, weight_VD, bias_V)]
    # Read while tracing, because a compiled graph runs without autocast.
    dtype = compute_dtype(hidden_BTD, weight_VD)
    return torch.ops.emobench.attached_loss(hidden_BTD, weight_VD, bias_V, attached, training, *needs_grad, dtype)[0]


@torch.library.custom_op("emobench::attached_loss", mutates_args=())
def _attached_loss(
    hidden_BTD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    attached: int,
    training: bool,
    grad_hidden: bool,
    grad_weight: bool,
    grad_bias: bool,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the loss, a factor, and gradients by hidden states, weight and bias (empty if not needed).

    The gradients of the loss are the factor times these. `dtype` is the dtype of the matrix products.
    """
    tensors = (hidden_BTD, weight_VD, bias_V)
    leaves = [
        None if t is None else t.detach().requires_grad_(needs_grad and training)
        for t, needs_grad in zip(tensors, (grad_hidden, grad_weight, grad_bias), strict=True)
    ]
    inputs = [t for t in leaves if t is not None and t.requires_grad]
    autocast = torch.autocast(hidden_BTD.device.type, dtype, enabled=dtype != weight_VD.dtype)
    with _autograd_inside(), torch.set_grad_enabled(training), autocast:
        loss = _ATTACHED[attached].prepared_loss(*leaves, training=training)
        tokens = _ATTACHED[attached].window[-1]["tokens"].clamp(min=1).to(loss.dtype) if training else loss.new_ones(())
        computed = iter(torch.autograd.grad(loss, inputs, tokens) if inputs else ())
    gradients = [next(computed) if t is not None and t.requires_grad else hidden_BTD.new_empty(0) for t in leaves]
    return loss.detach(), 1 / tokens, *gradients  # type: ignore[return-value]


@_attached_loss.register_fake
def _(
    hidden_BTD: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    attached: int,
    training: bool,
    *needs_grad_and_dtype: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    wide = torch.float64 if weight_VD.dtype == torch.float64 else torch.float32
    gradients = [
        torch.empty_like(t) if t is not None and needs_grad and training else hidden_BTD.new_empty(0)
        for t, needs_grad in zip((hidden_BTD, weight_VD, bias_V), needs_grad_and_dtype, strict=False)
    ]
    loss, factor = (hidden_BTD.new_empty((), dtype=wide) for _ in range(2))
    return loss, factor, *gradients  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.needs_grad = inputs[5:8]


def _scale(ctx: Any, grad_loss: Tensor, *unused: Tensor | None) -> tuple[Tensor | None, ...]:
    factor, *saved = ctx.saved_tensors
    # A dimension makes the product float32: a GradScaler starts with 65536, which is infinite in float16.
    factor = (grad_loss * factor).reshape(1)
    gradients = (
        (gradient * factor).to(gradient.dtype) if needs_grad else None
        for gradient, needs_grad in zip(saved, ctx.needs_grad, strict=True)
    )
    return *gradients, None, None, None, None, None, None


register: Callable[..., None] = _attached_loss.register_autograd
register(_scale, setup_context=_save)
