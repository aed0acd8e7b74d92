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
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import nn
from transformers.pytorch_utils import Conv1D

from emobench.core.errors import ConfigError, ModelError, first_line
from emobench.models.head import final_hidden
from emobench.training.recipe import Lora, require_liger_on

MOST_SHOWN = 12
NO_ATTENTION = ("mlp", "expert", "feed_forward", "ffn", "moe", "router")
"""Parts of module paths that belong to feed-forward layers."""
OUTPUTS = ("o_proj", "out_proj", "dense", "c_proj", "output")
"""Layers that write into the residual stream. Kernels of state-space models read their weights without an adapter."""
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

    layers = linear_layers(model)
    every_layer = lora.targets == ("all-linear",)
    missing = [name for name in lora.targets if not _names_module(model, name)]
    if missing and not every_layer:
        raise _misfit(model, f"{', '.join(missing)} of recipe.lora.targets names no module", layers)
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules="all-linear" if every_layer else list(lora.targets) or None,
    )
    try:
        with warnings.catch_warnings():  # about names in transformers and GPT-2's transposed layers, which peft handles
            warnings.simplefilter("ignore")
            wrapped = get_peft_model(model, config)
    except ValueError as error:
        why = first_line(error) if lora.targets else "peft has no default targets that fit this architecture"
        raise _misfit(model, why, layers) from None
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


def linear_layers(model: Any) -> dict[str, int]:
    """Return the width of the input of each linear layer but the head, by the layer's path."""
    head = model.get_output_embeddings()
    widths: dict[str, int] = {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not head:
            widths[path] = module.in_features
        elif isinstance(module, Conv1D):  # the linear layers of GPT-2
            widths[path] = module.weight.shape[0]
    return widths


def fitting_targets(model: Any, layers: Mapping[str, int]) -> list[str]:
    """Return targets that fit: the query and value projections, or else the layers of attention or mixers that read
    the hidden states, or else all linear layers."""
    names = _last_names(layers)
    if {"q_proj", "v_proj"} <= {*names}:
        return ["q_proj", "v_proj"]
    width = model.get_input_embeddings().weight.shape[1]
    fitting = []
    for path, inputs in layers.items():
        attends = not any(part in path for part in NO_ATTENTION)
        if inputs == width and attends:
            fitting.append(path)
    return [name for name in _last_names(fitting) if name not in OUTPUTS] or names


def _last_names(paths: Any) -> list[str]:
    """Return the last parts of module paths, each once."""
    return list(dict.fromkeys(path.rpartition(".")[2] for path in paths))


def _names_module(model: Any, target: str) -> bool:
    """Return whether a target names a module, as peft reads it: the end of its path."""
    return any(path == target or path.endswith(f".{target}") for path, _ in model.named_modules())


def _misfit(model: Any, why: str, layers: Mapping[str, int]) -> ModelError:
    names = _last_names(layers)
    if not names:
        return ModelError(
            f"LoRA cannot be added to {type(model).__name__}: it has no linear layer besides its head. Drop "
            "recipe.lora."
        )
    shown = ", ".join(names[:MOST_SHOWN])
    if len(names) > MOST_SHOWN:
        shown += ", ..."
    return ModelError(
        f"LoRA cannot be added to {type(model).__name__}: {why}. Its linear layers are {shown}. Name modules "
        f'with recipe.lora.targets, such as --set "recipe.lora.targets=[{",".join(fitting_targets(model, layers))}]".'
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
    """Let a model compute by Liger's kernels; `options` are those of Liger's function for its type.

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


def _transformers_values() -> list[tuple[Any, dict[str, Any]]]:
    """Return the modules of transformers' models and the classes that they define, each with its attributes."""
    values: list[tuple[Any, dict[str, Any]]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.models."):
            values.append((module, dict(vars(module))))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == module.__name__:
                    values.append((value, dict(vars(value))))
    return values


def _restore(before: list[tuple[Any, dict[str, Any]]], *, classes: bool = False) -> None:
    """Restore replaced attributes: all, or only `classes`. A model looks up functions when it computes."""
    for owner, values in before:
        for name, value in values.items():
            if vars(owner).get(name) is not value and (isinstance(value, type) or not classes):
                setattr(owner, name, value)


@torch.no_grad()
def require_separate_conversations(model: Any) -> None:
    """Raise ConfigError if the hidden states of a conversation depend on another one in the same packed row.

    transformers derives the boundaries from position ids, in those models that pass them to its masks; others attend to
    the whole row without a word, and convolutions and states of recurrent layers run on. A model is therefore tried,
    not trusted by name.
    """
    vocabulary = model.get_input_embeddings().num_embeddings
    training = model.training
    model.eval()
    try:
        with _random_weights(model):
            ids_1T = torch.randint(vocabulary, (1, 2 * LENGTH), generator=torch.Generator().manual_seed(0))
            ids_1T = ids_1T.to(model.device)
            position_ids_1T = torch.arange(LENGTH, device=model.device).repeat(2)[None]
            alone_1TD = final_hidden(model, input_ids=ids_1T[:, LENGTH:])
            packed_1TD = final_hidden(model, input_ids=ids_1T, position_ids=position_ids_1T)[:, LENGTH:]
    except TypeError as error:
        raise _mixed(model, f"it takes no position ids: {error}") from None
    finally:
        model.train(training)
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
    kept, place = [tensor.data for tensor in tensors], model.device
    if place.type == "cuda" and sum(4 * tensor.numel() for tensor in kept) > torch.cuda.mem_get_info(place)[0]:
        place = torch.device("cpu")
    noise = torch.randn(PERIOD, generator=torch.Generator().manual_seed(0)).to(place)
    try:
        for tensor in tensors:
            before = tensor.data.to(place, torch.float32)
            if id(tensor) not in parameters:
                tensor.data = before
                continue
            drawn = noise.repeat(tensor.numel() // PERIOD + 1)[: tensor.numel()].view(tensor.shape)
            tensor.data = drawn / math.sqrt(tensor.shape[-1]) if tensor.ndim > 1 else before + drawn / 10
        yield
    finally:
        for tensor, before in zip(tensors, kept, strict=True):
            tensor.data = before


def _mixed(model: Any, why: str) -> ConfigError:
    return ConfigError(
        f"`recipe.packing` is conversations, and {type(model).__name__} mixes the conversations of a row ({why}); set "
        "recipe.packing=rows."
    )
