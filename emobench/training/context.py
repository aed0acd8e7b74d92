"""What `Objective.setup` may ask for while the pre-trained weights are loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from emobench.errors import ConfigError
from emobench.models.head import Head
from emobench.objectives import CostEmbedding


@dataclass(frozen=True)
class TrainingContext:
    """The `SetupContext` of one training; see `emobench.objectives.base.SetupContext`."""

    head: Head
    total_steps: int
    pretrained: bool
    """False where the weights were drawn at random."""
    load_head: Callable[[str], Tensor]
    """Returns the head weight of another model, by name or folder."""

    @property
    def vocabulary(self) -> int:
        return self.head.linear.out_features

    def head_weight(self) -> Tensor:
        # A copy: the head itself is trained from here on.
        return self._pretrained_weight().clone()

    def cost_embedding(self, source: str = "pretrained") -> CostEmbedding:
        if source == "pretrained":
            weight = self._pretrained_weight()
        elif source == "initial":
            weight = self.head.linear.weight.detach()
        else:
            weight = self.load_head(source)
            if len(weight) != self.vocabulary:
                raise ConfigError(
                    f"cost={source}: its head has {len(weight)} rows; expected {self.vocabulary}, the vocabulary of "
                    "the model that is trained. Take a model with the same tokenizer."
                )
        device = self.head.linear.weight.device
        # Half precision on a GPU: rows are at most 1, where float16 is eight times finer than bfloat16.
        return CostEmbedding(weight, dtype=torch.float16 if device.type == "cuda" else None, device=device)

    def _pretrained_weight(self) -> Tensor:
        if not self.pretrained:
            raise no_pretrained_head()
        return self.head.linear.weight.detach()


def no_pretrained_head() -> ConfigError:
    """Return the error for an objective that reads the pre-trained head of a model that starts from scratch."""
    return ConfigError(
        "This objective takes its costs from a pre-trained LM head, and this model starts from scratch; "
        "give another source, such as --objective 'emo(cost=gpt2)', or 'emo(cost=initial)' for the random head."
    )
