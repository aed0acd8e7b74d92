"""What a model's class can do, tried on the meta device: without weights, while a run is planned.

Some classes cannot run there, because they read values. Then nothing is known, and `probe_head` decides with the
weights.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from emobench.core.errors import ModelError, first_line
from emobench.models.head import base_model, find_linear
from emobench.models.own_loss import refuse_auxiliary_loss

LENGTH = 4


def require_generation(name: str, skeleton: nn.Module) -> None:
    """Raise ModelError for a model that computes a text at once, but not with the cache that generation needs."""
    if _error_of(skeleton, use_cache=False) is not None:
        return
    error = _error_of(skeleton, use_cache=True)
    if error is not None:
        raise ModelError(
            f"The model {name} ({type(skeleton).__name__}) cannot generate: with its cache, transformers fails in "
            f"'{first_line(error)}'. Give a model whose configuration fits its class."
        )


def why_untrainable(skeleton: nn.Module) -> str | None:
    """Return why no objective can train a model on the meta device, None if nothing is known against it."""
    try:
        refuse_auxiliary_loss(skeleton)
        linear = find_linear(skeleton)
    except ModelError as error:
        return str(error)
    layers = _layers_before_the_head(skeleton, linear)
    if not layers:
        return None
    return (
        f"The LM head of {type(skeleton).__name__} cannot be used: between the base model and the head are further "
        f"layers ({', '.join(layers)}). Use a causal model with a plain linear head."
    )


def _layers_before_the_head(skeleton: nn.Module, linear: nn.Linear) -> list[str]:
    """Return the classes of the layers with weights that run outside the base model before the head."""
    body = base_model(skeleton)
    inside = set(body.modules()) | {linear}
    called: list[str] = []
    passed: list[str] = []

    def note(module: nn.Module, *_: Any) -> None:
        called.append(type(module).__name__)

    def pass_on(*_: Any) -> None:
        passed.extend(called)

    outside = [module for module in skeleton.modules() if module not in inside and list(module.parameters(False))]
    if not outside:
        return []
    handles = [module.register_forward_hook(note) for module in outside]
    handles.append(linear.register_forward_pre_hook(pass_on))
    try:
        _error_of(skeleton, use_cache=True)
    finally:
        for handle in handles:
            handle.remove()
    return passed


@torch.no_grad()
def _error_of(skeleton: nn.Module, *, use_cache: bool) -> Exception | None:
    """Return the error of a forward pass on the meta device."""
    training, _ = skeleton.training, skeleton.eval()
    try:
        with torch.device("meta"):
            ids_1T: Tensor = torch.zeros(1, LENGTH, dtype=torch.long)
            skeleton(input_ids=ids_1T, use_cache=use_cache)
    except Exception as error:  # a class can raise anything
        return error
    finally:
        skeleton.train(training)
    return None
