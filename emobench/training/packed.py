"""Packed rows: a probe that a model separates the conversations of a row.

transformers derives the boundaries from position ids, in those models that pass them to its masks; others attend to the
whole row without a word, and convolutions and states of recurrent layers run on. A model is therefore tried, not
trusted by name.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch

from emobench.core.errors import ConfigError
from emobench.models.head import final_hidden

LENGTH, TOLERANCE = 8, 1e-5
"""Tokens of a probed conversation, and the largest difference in float32, relative to the largest hidden state.

Models that separate conversations differ by less than 1e-6, and those that mix them by more than 1e-2.
"""
PERIOD = 1_048_583
"""Random numbers that the weights repeat: a prime, so that rows of a matrix differ."""


@torch.no_grad()
def require_separate_conversations(model: Any) -> None:
    """Raise ConfigError if what a model computes for a conversation depends on another one in the same packed row."""
    vocabulary = model.get_input_embeddings().num_embeddings
    training, _ = model.training, model.eval()
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
    parameters = {id(one) for one in model.parameters()}
    tensors = [one for one in chain(model.parameters(), model.buffers()) if one.is_floating_point()]
    kept, place = [one.data for one in tensors], model.device
    if place.type == "cuda" and sum(4 * one.numel() for one in kept) > torch.cuda.mem_get_info(place)[0]:
        place = torch.device("cpu")
    noise = torch.randn(PERIOD, generator=torch.Generator().manual_seed(0)).to(place)
    try:
        for one in tensors:
            before = one.data.to(place, torch.float32)
            if id(one) not in parameters:
                one.data = before
                continue
            drawn = noise.repeat(one.numel() // PERIOD + 1)[: one.numel()].view(one.shape)
            one.data = drawn / math.sqrt(one.shape[-1]) if one.ndim > 1 else before + drawn / 10
        yield
    finally:
        for one, before in zip(tensors, kept, strict=True):
            one.data = before


def _mixed(model: Any, why: str) -> ConfigError:
    return ConfigError(
        f"`recipe.packing` is conversations, and {type(model).__name__} mixes the conversations of a row ({why}); set "
        "recipe.packing=rows."
    )
