"""Low-rank adapters (LoRA) by peft: added to a model, and checked on its architecture before any weight is read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn
from transformers.pytorch_utils import Conv1D

from emobench.core.errors import ModelError, first_line
from emobench.training.recipe import Lora

MOST_SHOWN = 12
NO_ATTENTION = ("mlp", "expert", "feed_forward", "ffn", "moe", "router")
"""Parts of module paths that belong to feed-forward layers."""
OUTPUTS = ("o_proj", "out_proj", "dense", "c_proj", "output")
"""Layers that write into the residual stream. Kernels of state-space models read their weights without an adapter."""


def with_adapters(model: Any, lora: Lora) -> Any:
    """Return a PEFT model with new adapters. Raises ModelError, as `check_adapters` does."""
    from peft import LoraConfig, get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = linear_layers(model)
    every_layer = lora.targets == ("all-linear",)
    missing = [name for name in lora.targets if not _matches(model, name)]
    if missing and not every_layer:
        raise _unfitting(model, f"{', '.join(missing)} of recipe.lora.targets names no module", layers)
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
        raise _unfitting(model, why, layers) from None
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


def check_adapters(skeleton: Any, lora: Lora) -> None:
    """Raise ModelError if adapters cannot be added to a model, which may be on the meta device. It is changed."""
    with_adapters(skeleton, lora)


def linear_layers(model: Any) -> dict[str, int]:
    """Return the width of the input of each linear layer but the head, by the layer's path."""
    head, found = model.get_output_embeddings(), {}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear) and module is not head:
            found[path] = module.in_features
        elif isinstance(module, Conv1D):  # the linear layers of GPT-2
            found[path] = module.weight.shape[0]
    return found


def fitting_targets(model: Any, layers: Mapping[str, int]) -> list[str]:
    """Return targets that fit: the query and value projections, or else the layers of attention or mixers that read
    the hidden states, or else all linear layers."""
    names = list(dict.fromkeys(path.rpartition(".")[2] for path in layers))
    if {"q_proj", "v_proj"} <= {*names}:
        return ["q_proj", "v_proj"]
    width = model.get_input_embeddings().weight.shape[1]
    reading = [
        path.rpartition(".")[2]
        for path, inputs in layers.items()
        if inputs == width and not any(part in path for part in NO_ATTENTION)
    ]
    return list(dict.fromkeys(name for name in reading if name not in OUTPUTS)) or names


def _matches(model: Any, target: str) -> bool:
    """Return whether a target names a module, as peft reads it: the end of its path."""
    return any(path == target or path.endswith(f".{target}") for path, _ in model.named_modules())


def _unfitting(model: Any, why: str, layers: Mapping[str, int]) -> ModelError:
    names = list(dict.fromkeys(path.rpartition(".")[2] for path in layers))
    if not names:
        return ModelError(
            f"LoRA cannot be added to {type(model).__name__}: it has no linear layer besides its head. Drop "
            "recipe.lora."
        )
    return ModelError(
        f"LoRA cannot be added to {type(model).__name__}: {why}. Its linear layers are {_shown(names)}. Name modules "
        f'with recipe.lora.targets, such as --set "recipe.lora.targets=[{",".join(fitting_targets(model, layers))}]".'
    )


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_SHOWN]) + (", ..." if len(names) > MOST_SHOWN else "")
