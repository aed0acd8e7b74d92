"""Liger's kernels in a model while it is trained: RMSNorm, gated layers and rotary positions, each as one operation.

The loss is emobench's own. Liger also replaces classes and functions of transformers' modules, for all models of the
process; here they are put back, so that a later evaluation is not computed by them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from emobench.core.errors import ConfigError


def require_liger(model: Any, device: str) -> None:
    """Raise ConfigError unless Liger has kernels for the model on the device."""
    require_liger_on(device)
    kind = model.config.model_type
    if kind not in _kernels():
        raise ConfigError(
            f"`recipe.liger` is true, and liger-kernel has no kernels for models of type {kind}; drop it."
        )


def require_liger_on(device: str) -> None:
    """Raise ConfigError if no kernel of Liger can run on a device."""
    if not device.startswith("cuda"):
        raise ConfigError(f"`recipe.liger` is true, which needs a CUDA device, and --device is {device}; drop it.")
    if find_spec("liger_kernel") is None:
        raise ConfigError("`recipe.liger` is true, and liger-kernel is not installed: pip install liger-kernel")


@contextmanager
def liger_body(model: Any, **options: bool) -> Iterator[None]:
    """Let a model compute by Liger's kernels; `options` are those of Liger's function for its type.

    Afterwards the model keeps Liger's layers, and transformers' modules are as before.
    """
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    logging.getLogger("liger_kernel").setLevel(logging.ERROR)  # it warns of back ends for other devices
    before = [(owner, dict(vars(owner))) for owner in _owners()]
    _apply_liger_kernel_to_instance(model, cross_entropy=False, fused_linear_cross_entropy=False, **options)
    _restore(before, classes=True)  # the model has its layers; a teacher that is loaded next gets the usual ones
    try:
        yield
    finally:
        _restore(before)


def _owners() -> list[Any]:
    """Return the modules of transformers' models, and the classes that they define."""
    modules = [module for name, module in list(sys.modules.items()) if name.startswith("transformers.models.")]
    classes = [
        value
        for module in modules
        for value in list(vars(module).values())
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return [*modules, *classes]


def _restore(before: list[tuple[Any, dict[str, Any]]], *, classes: bool = False) -> None:
    """Put back what was replaced: all, or only `classes`. A model looks up functions when it computes."""
    for owner, values in before:
        for name, value in values.items():
            if vars(owner).get(name) is not value and (isinstance(value, type) or not classes):
                setattr(owner, name, value)


def _kernels() -> dict[str, Any]:
    """Return Liger's function for each type of model."""
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    return MODEL_TYPE_TO_APPLY_LIGER_FN
