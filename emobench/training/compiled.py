"""The attached loss as one opaque operator, so that `torch.compile` takes the whole model without a graph break.

Legend: B sequences, T positions, V rows of the head, D hidden width.

What the operator does cannot be traced: it calls the objective, a stranger's Python, and its chunks depend on the
labels. In a compiled graph it is one node, with the shapes of its results known beforehand; in its backward the
gradients, already made, are scaled. Until then they are those of the mean over the micro-batch's own tokens times
their number: divided by a large denominator before a GradScaler's factor is there, float16 would lose most of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from emobench.objectives.engine.logits import compute_dtype

_ATTACHED: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Attached objectives by number: an operator takes tensors and numbers only."""


def _autograd_inside() -> Any:
    """An operator runs below autograd; an objective's own slopes are found by it, so here it is let in again."""
    without = torch._C._dispatch_tls_local_exclude_set()
    for name in ("AutogradOther", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView"):
        without = without.remove(getattr(torch._C.DispatchKey, name))
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), without)


def number_of(attached: Any) -> int:
    """Return the number by which the operator finds an attached objective again."""
    number = id(attached)
    _ATTACHED[number] = attached
    return number


def compiled_loss(
    attached: int, hidden_BTD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, training: bool
) -> Tensor:
    """Return the loss of the micro-batch that was prepared last, a scalar with gradients."""
    wanted = [t is not None and t.requires_grad for t in (hidden_BTD, weight_VD, bias_V)]
    # Found while tracing: a compiled graph runs with autocast off.
    dtype = compute_dtype(hidden_BTD, weight_VD)
    return torch.ops.emobench.attached_loss(hidden_BTD, weight_VD, bias_V, attached, training, *wanted, dtype)[0]


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
    """Return the loss, a factor, and gradients by hidden states, weight and bias; empty where they are not wanted.

    The loss's own gradients are the factor times those. `dtype` is that of the matrix products.
    """
    given = (hidden_BTD, weight_VD, bias_V)
    leaves = [
        None if t is None else t.detach().requires_grad_(wanted and training)
        for t, wanted in zip(given, (grad_hidden, grad_weight, grad_bias), strict=True)
    ]
    wanted = [t for t in leaves if t is not None and t.requires_grad]
    autocast = torch.autocast(hidden_BTD.device.type, dtype, enabled=dtype != weight_VD.dtype)
    with _autograd_inside(), torch.set_grad_enabled(training), autocast:
        loss = _ATTACHED[attached].prepared_loss(*leaves, training=training)
        tokens = _ATTACHED[attached].window[-1]["tokens"].clamp(min=1).to(loss.dtype) if training else loss.new_ones(())
        found = iter(torch.autograd.grad(loss, wanted, tokens) if wanted else ())
    gradients = [next(found) if t is not None and t.requires_grad else hidden_BTD.new_empty(0) for t in leaves]
    return loss.detach(), 1 / tokens, *gradients  # type: ignore[return-value]


@_attached_loss.register_fake
def _(
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
    wide = torch.float64 if weight_VD.dtype == torch.float64 else torch.float32
    given = ((hidden_BTD, grad_hidden), (weight_VD, grad_weight), (bias_V, grad_bias))
    gradients = [
        torch.empty_like(t) if t is not None and wanted and training else hidden_BTD.new_empty(0) for t, wanted in given
    ]
    loss, factor = (hidden_BTD.new_empty((), dtype=wide) for _ in range(2))
    return loss, factor, *gradients  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.wanted = inputs[5:8]


def _scale(ctx: Any, grad_loss: Tensor, *unused: Tensor | None) -> tuple[Tensor | None, ...]:
    factor, *saved = ctx.saved_tensors
    # With a dimension, so that the product is float32: 65536, a GradScaler's first factor, is infinite in float16.
    factor = (grad_loss * factor).reshape(1)
    gradients = (
        (gradient * factor).to(gradient.dtype) if wanted else None
        for gradient, wanted in zip(saved, ctx.wanted, strict=True)
    )
    return *gradients, None, None, None, None, None, None


register: Callable[..., None] = _attached_loss.register_autograd
register(_scale, setup_context=_save)
