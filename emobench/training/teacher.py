"""A frozen causal LM as a teacher: its hidden states for a batch, and its logits for a chunk.

Legend: B sequences, T positions, C tokens of a chunk, H hidden width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from emobench.errors import ConfigError
from emobench.models.head import final_hidden, probe_head
from emobench.objectives.engine.products import accumulator_dtype, multiply_wide


class FrozenTeacher:
    """A model in eval mode without gradients. It is not a module, so no optimizer or checkpoint contains it."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self.head = probe_head(model)

    @property
    def vocabulary(self) -> int:
        """Number of rows of the head."""
        return self.head.linear.out_features

    @torch.no_grad()
    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        """Return the final hidden states, (B, T, H), under the caller's autocast. Position t predicts token t + 1."""
        context = getattr(self.model.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if context is not None and input_ids_BT.shape[1] > context:
            raise ConfigError(
                f"The teacher reads at most {context} tokens, and a row has {input_ids_BT.shape[1]}; add "
                f"--set recipe.max_length={context}, or take a teacher with a longer context."
            )
        # Each process of a distributed training has its own device.
        self.model.to(input_ids_BT.device)
        mask = {} if attention_mask_BT is None else {"attention_mask": attention_mask_BT}
        return final_hidden(self.model, input_ids=input_ids_BT, **mask)

    @torch.no_grad()
    def logits(self, hidden_CH: Tensor) -> Tensor:
        """Return the logits of a chunk, (C, V), always float32 (float64 for a float64 teacher)."""
        linear = self.head.linear
        out_CV = hidden_CH.new_empty(len(hidden_CH), self.vocabulary, dtype=accumulator_dtype(linear.weight.dtype))
        multiply_wide(hidden_CH.to(linear.weight.dtype), linear.weight, out_CV)
        if linear.bias is not None:
            out_CV += linear.bias
        return self.head.logit_map.apply(out_CV)
