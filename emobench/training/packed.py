"""Packed rows: a probe that a model separates the conversations of a row.

transformers derives the boundaries from position ids, in those models that pass them to its masks; others attend to the
whole row without a word. A model is therefore tried, not trusted by name.
"""

from __future__ import annotations

from typing import Any

import torch

from emobench.errors import ConfigError
from emobench.models.head import final_hidden

LENGTH, TOLERANCE = 8, 1e-2
"""Tokens of a probed conversation, and the largest difference relative to the largest hidden state."""


@torch.no_grad()
def require_separate_conversations(model: Any) -> None:
    """Raise ConfigError if what a model computes for a conversation depends on another one in the same packed row."""
    vocabulary, device = model.get_input_embeddings().num_embeddings, model.device
    ids_1T = torch.randint(vocabulary, (1, 2 * LENGTH), generator=torch.Generator().manual_seed(0)).to(device)
    position_ids_1T = torch.arange(LENGTH, device=device).repeat(2)[None]
    training, _ = model.training, model.eval()
    try:
        alone_1TD = final_hidden(model, input_ids=ids_1T[:, LENGTH:])
        packed_1TD = final_hidden(model, input_ids=ids_1T, position_ids=position_ids_1T)[:, LENGTH:]
    except TypeError as error:
        raise _mixed(model, f"it takes no position ids: {error}") from None
    finally:
        model.train(training)
    difference = (packed_1TD - alone_1TD).abs().max() / alone_1TD.abs().max()
    if not difference <= TOLERANCE:
        raise _mixed(model, "its attention crosses their boundaries")


def _mixed(model: Any, why: str) -> ConfigError:
    return ConfigError(
        f"`recipe.packing` is conversations, and {type(model).__name__} mixes the conversations of a row ({why}); set "
        "recipe.packing=rows."
    )
