"""Changes that a recipe makes to a model, and checks that the model can take them.

LoRA       low-rank adapters, by peft; checked on the architecture before any weight is read
Liger      kernels for RMSNorm, gated layers and rotary positions, while the model is trained
packing    a model must separate the conversations of a packed row: a probe tries it

Legend: T positions, D hidden width.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from emobench.core.errors import ConfigError, ModelError, first_line
from emobench.models.head import eval_mode, final_hidden
from emobench.training.recipe import Lora, require_liger_on

ClassValues: TypeAlias = list[tuple[Any, dict[str, Any]]]
"""Modules and classes, each with its attributes."""

LENGTH, TOLERANCE = 8, 1e-5
"""Tokens of a probed conversation, and the largest difference in float32, relative to the largest hidden state.

Models that separate conversations differ by less than 1e-6, and those that mix them by more than 1e-2.
"""
PERIOD = 1_048_583
"""Random numbers that the weights of a probe repeat: a prime, so that rows of a matrix differ."""


def with_adapters(model: Any, lora: Lora) -> Any:
    """Return a PEFT model with new adapters. Raises ModelError if they do not fit the model.

    The model is changed. It may be on the meta device, to check its architecture.
    """
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    every_layer = lora.targets == ("all-linear",)
    paths = [path for path, _ in model.named_modules()]
    for target in lora.targets:
        # As peft reads a target: the end of a path.
        if not every_layer and not any(f".{path}".endswith(f".{target}") for path in paths):
            raise _misfit(model, f"{target} of recipe.lora.targets names no module")
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if every_layer else list(lora.targets) or None,
    )
    try:
        # About names in transformers, and GPT-2's transposed layers, which peft handles.
        with warnings.catch_warnings(action="ignore"):
            wrapped = get_peft_model(model, config)
    except ValueError as error:
        why = first_line(error) if lora.targets else "peft has no default targets that fit this architecture"
        raise _misfit(model, why) from None
    # An adapter on the head would have no effect: the engine reads the head's own weight.
    base: Any = wrapped.get_base_model()
    if isinstance(base.get_output_embeddings(), BaseTunerLayer):
        raise ModelError("LoRA on the LM head is not supported; leave the head out of recipe.lora.targets.")
    # An adapter on the embedding would be merged into a head that shares its weight, and was trained without it.
    tied = getattr(base.config.get_text_config(decoder=True), "tie_word_embeddings", False)
    if tied and isinstance(base.get_input_embeddings(), BaseTunerLayer):
        raise ModelError(
            f"LoRA on the embedding of {type(base).__name__} is not supported: the LM head has the same weight. Leave "
            "the embedding out of recipe.lora.targets."
        )
    return wrapped


def _misfit(model: Any, why: str) -> ModelError:
    head = model.get_output_embeddings()
    names = []
    for path, module in model.named_modules():
        if isinstance(module, (nn.Linear, Conv1D)) and module is not head:
            names.append(path.rpartition(".")[2])
    layers = ", ".join(dict.fromkeys(names)) or "none"
    return ModelError(
        f"LoRA cannot be added to {type(model).__name__}: {why}. Name modules with recipe.lora.targets, such as --set "
        f'"recipe.lora.targets=[q_proj,v_proj]"; its linear layers are: {layers}.'
    )


def require_liger(model: Any, device: str) -> None:
    """Raise ConfigError unless Liger has kernels for the model on the device."""
    require_liger_on(device)
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    kind = model.config.model_type
    if kind not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        raise ConfigError(
            f"`recipe.liger` is true, and liger-kernel has no kernels for models of type {kind}; drop it."
        )


@contextmanager
def liger_body(model: Any, **options: bool) -> Iterator[None]:
    """Let a model compute by Liger's kernels; `options` go to Liger's function for its type.

    Liger also replaces classes and functions of transformers' modules, for all models of the process. Afterwards the
    model keeps Liger's layers, and transformers' modules are as before, so that an evaluation does not use them.
    """
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    logging.getLogger("liger_kernel").setLevel(logging.ERROR)  # it warns of back ends for other devices
    before = _transformers_values()
    _apply_liger_kernel_to_instance(model, cross_entropy=False, fused_linear_cross_entropy=False, **options)
    _restore(before, classes=True)  # the model has its layers; a teacher that is loaded next gets the usual ones
    try:
        yield
    finally:
        _restore(before)


def _transformers_values() -> ClassValues:
    """Return the modules of transformers' models and the classes that they define, each with its attributes."""
    values: ClassValues = []
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models."):
            owned = [value for value in vars(module).values() if isinstance(value, type) and value.__module__ == name]
            values += [(owner, dict(vars(owner))) for owner in (module, *owned)]
    return values


def _restore(before: ClassValues, *, classes: bool = False) -> None:
    """Restore replaced attributes: all, or only `classes`. A model looks up functions when it computes."""
    for owner, values in before:
        for name, value in values.items():
            if vars(owner).get(name) is not value and (isinstance(value, type) or not classes):
                setattr(owner, name, value)


@torch.no_grad()
def require_separate_conversations(model: Any) -> None:
    """Raise ConfigError if the hidden states of a conversation depend on other conversations in the same packed row.

    transformers derives the boundaries from position ids, in those models that pass them to its masks; others attend to
    the whole row without a word, and convolutions and states of recurrent layers run on. A model is therefore tried,
    not trusted by name.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    try:
        with eval_mode(model), _random_weights(model):
            ids_1T = torch.randint(vocabulary, (1, 2 * LENGTH), generator=torch.Generator().manual_seed(0))
            ids_1T = ids_1T.to(model.device)
            position_ids_1T = torch.arange(LENGTH, device=model.device).repeat(2)[None]
            alone_1TD = final_hidden(model, input_ids=ids_1T[:, LENGTH:])
            packed_1TD = final_hidden(model, input_ids=ids_1T, position_ids=position_ids_1T)[:, LENGTH:]
    except TypeError as error:
        raise _mixed(model, f"it takes no position ids: {error}") from None
    difference = (packed_1TD - alone_1TD).abs().max() / alone_1TD.abs().max()
    if not difference <= TOLERANCE:
        raise _mixed(model, "its attention, convolutions or states cross their boundaries")


@contextmanager
def _random_weights(model: Any) -> Iterator[None]:
    """Give a model random float32 weights for a while, on its device or, if they do not fit, on the CPU.

    Whether conversations mix is a matter of the architecture. Small weights, such as those of a training from scratch,
    would hide it, and so would half precision. Matrices have entries of standard deviation 1 / sqrt(columns).
    """
    parameters = {id(parameter) for parameter in model.parameters()}
    tensors = [tensor for tensor in chain(model.parameters(), model.buffers()) if tensor.is_floating_point()]
    kept = [tensor.data for tensor in tensors]
    place = model.device
    if place.type == "cuda" and sum(4 * tensor.numel() for tensor in kept) > torch.cuda.mem_get_info(place)[0]:
        place = torch.device("cpu")
    noise = torch.randn(PERIOD, generator=torch.Generator().manual_seed(0)).to(place)
    try:
        for tensor in tensors:
            tensor.data = tensor.data.to(place, torch.float32)
            if id(tensor) not in parameters:
                continue
            drawn = noise.repeat(tensor.numel() // PERIOD + 1)[: tensor.numel()].view(tensor.shape)
            if tensor.ndim > 1:
                tensor.data = drawn / math.sqrt(tensor.shape[-1])
            else:
                tensor.data = tensor.data + drawn / 10
        yield
    finally:
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.data = before


def _mixed(model: Any, why: str) -> ConfigError:
    return ConfigError(
        f"`recipe.packing` is conversations, and {type(model).__name__} mixes the conversations of a row ({why}); set "
        "recipe.packing=rows."
    )
