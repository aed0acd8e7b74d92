"""A model's own loss, whose place an objective takes: it must be the next token's cross-entropy and nothing else.

Legend: B sequences, T positions, V vocabulary.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from emobench.core.errors import ModelError
from emobench.models.head import eval_mode, unwrapped
from emobench.models.quiet import silent_libraries

LENGTH = 8
"""Tokens of a measured sequence."""
TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-4}
"""Largest relative difference from the cross-entropy, by the precision of the loss."""
COARSE = 2e-2
"""The same in half precision."""


def refuse_auxiliary_loss(model: nn.Module, asked: Any = None) -> None:
    """Raise ModelError if a model adds a loss for its experts, or a z-loss, which an objective would drop.

    `asked` is the argument `output_router_logits` of the forward; if it is None, the configuration decides.
    """
    bare = unwrapped(model)
    if asked is None:
        configs = (bare.config, bare.config.get_text_config(decoder=True))
        asked = any(getattr(config, "output_router_logits", False) for config in configs)
    if asked:
        raise ModelError(
            f"`output_router_logits` adds an auxiliary loss for the experts of {type(bare).__name__} to its own loss, "
            "and an objective would drop it. Train without it: set `output_router_logits` to false in config.json or "
            "`model.config`, and do not pass it to the model. TRL's trainers set it themselves, unless they have "
            "`router_aux_loss_coef=0.0`, as in SFTConfig(router_aux_loss_coef=0.0)."
        )
    z_loss = getattr(bare, "z_loss_coefficient", None)  # of Bamba
    if z_loss:
        raise ModelError(
            f"`z_loss_coefficient` is {z_loss}, which adds a z-loss to the own loss of {type(bare).__name__}, and an "
            "objective would drop it. Set it to 0 in config.json, or as `model.z_loss_coefficient`."
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
    if not abs(own - right) <= TOLERANCES.get(loss.dtype, COARSE) * abs(right):
        raise ModelError(
            f"{type(bare).__name__} cannot be trained: its own loss on random tokens is {own:.6g}, and the "
            f"cross-entropy of the next token is {right:.6g}. An objective would take its place and drop the "
            "difference. Remove the other part of the loss (a coefficient in its configuration, or a `loss_function` "
            "that was set), or take a causal LM whose labels are its input."
        )
