"""Whether a model can be trained with an objective, and can generate: measured, as configurations do not say all.

A plan tries the model's class on the meta device, without weights (`require_generation`, `why_untrainable`). Some
classes cannot run there, because they read values; then `probe_head` decides with the weights. With weights,
`require_next_token_loss` measures the model's own loss, whose place an objective takes: it must be the next token's
cross-entropy and nothing else.

Legend: B sequences, T positions, V vocabulary.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from emobench.core.errors import ModelError, first_line
from emobench.models.head import eval_mode, find_linear, unwrapped
from emobench.models.quiet import silent_libraries

LENGTH = 8
"""Tokens of a sequence whose loss is measured."""
META_LENGTH = 4
"""Tokens of a sequence on the meta device."""
TOLERANCE, COARSE = 1e-4, 2e-2
"""Largest relative difference from the cross-entropy, and in half precision."""


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
        find_linear(skeleton)
    except ModelError as error:
        return str(error)
    return None


@torch.no_grad()
def _error_of(skeleton: nn.Module, *, use_cache: bool) -> Exception | None:
    """Return the error of a forward pass on the meta device."""
    try:
        with eval_mode(skeleton), torch.device("meta"):
            skeleton(input_ids=torch.zeros(1, META_LENGTH, dtype=torch.long), use_cache=use_cache)
    except Exception as error:  # a class can raise anything
        return error
    return None


def refuse_auxiliary_loss(model: nn.Module, asked: Any = None) -> None:
    """Raise ModelError if a model adds a loss for its experts, or a z-loss, which an objective would drop.

    `asked` is the argument `output_router_logits` of the forward; if it is None, the configuration decides.
    """
    bare = unwrapped(model)
    if asked is None:
        configs = (bare.config, bare.config.get_text_config(decoder=True))
        asked = any(getattr(config, "output_router_logits", False) for config in configs)
    field = ""
    if asked:
        field = "output_router_logits"  # TRL's trainers set it, unless they have router_aux_loss_coef=0.0
    elif getattr(bare, "z_loss_coefficient", None):  # of Bamba
        field = "z_loss_coefficient"
    if field:
        raise ModelError(
            f"`{field}` adds another loss to the own loss of {type(bare).__name__}, and an objective would drop it. "
            f"Set `{field}` to 0 in config.json, or of the model; in TRL, give SFTConfig(router_aux_loss_coef=0.0)."
        )


@torch.no_grad()
def require_next_token_loss(model: nn.Module) -> None:
    """Measure a model's own loss on random tokens. Raise ModelError unless it is the cross-entropy of the next token.

    It is another one where a class adds a part that no setting names, has a loss function of its own, or takes labels
    that are shifted already. A class without a loss has none to lose. The weights must be loaded and not sharded. Modes
    and random states do not change.
    """
    bare = unwrapped(model)
    parameters = inspect.signature(bare.forward).parameters
    if "labels" not in parameters and not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    head = bare.get_output_embeddings()
    rows = min(head.weight.shape[0], bare.get_input_embeddings().weight.shape[0])
    ids_1T = torch.randint(rows, (1, LENGTH), generator=torch.Generator().manual_seed(0)).to(head.weight.device)
    devices = [head.weight.device] if head.weight.device.type == "cuda" else []
    with torch.random.fork_rng(devices), eval_mode(bare), silent_libraries():
        loss = bare(input_ids=ids_1T, labels=ids_1T, use_cache=False).loss
        # Some libraries give no logits beside a loss.
        logits_TV = bare(input_ids=ids_1T, use_cache=False).logits[0, :-1]
    if loss is None:
        return
    expected = F.cross_entropy(logits_TV.to(torch.promote_types(logits_TV.dtype, torch.float32)), ids_1T[0, 1:])
    own, right = float(loss), float(expected)
    tolerance = TOLERANCE if loss.dtype in (torch.float32, torch.float64) else COARSE
    if not abs(own - right) <= tolerance * abs(right):
        raise ModelError(
            f"{type(bare).__name__} cannot be trained: its own loss on random tokens is {own:.6g}, and the "
            f"cross-entropy of the next token is {right:.6g}. An objective would take its place and drop the "
            "difference. Remove the other part of the loss (a coefficient in its configuration, or a `loss_function` "
            "that was set), or take a causal LM whose labels are its input."
        )
