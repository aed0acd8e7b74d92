"""What `Objective.setup` can read while the model still has its pre-trained weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from emobench.config import PRETRAINED
from emobench.data.oracle import HiddenMarkovLanguage
from emobench.errors import ConfigError, ModelError
from emobench.models.head import Head
from emobench.objectives import CostEmbedding
from emobench.training.language import DeviceLanguage
from emobench.training.teacher import FrozenTeacher


@dataclass(frozen=True)
class TrainingContext:
    """The `SetupContext` of one training; see `emobench.objectives.base.SetupContext`."""

    head: Head
    total_steps: int
    pretrained: bool
    """False if the weights are random."""
    load_head: Callable[[str], Tensor]
    """Load the head weight of another model, by name or folder."""
    model: Any = None
    """The model to train, with its weights before training."""
    load_model: Callable[[str], Any] | None = None
    """Load another causal LM, by name or folder."""
    known_language: HiddenMarkovLanguage | None = None
    """The distribution of the training corpus, or None if it is not known."""

    @property
    def vocabulary(self) -> int:
        return self.head.linear.out_features

    def head_weight(self) -> Tensor:
        # A copy, because training changes the head.
        return self._pretrained_weight().clone()

    def cost_embedding(self, source: str = PRETRAINED) -> CostEmbedding:
        if source == PRETRAINED:
            weight = self._pretrained_weight()
        elif source == "initial":
            weight = self.head.linear.weight.detach()
        else:
            weight = self.load_head(source)
            self._check_rows(f"cost={source}: its head", len(weight), self.vocabulary)
        device = self.head.linear.weight.device
        # Half precision on a GPU. Values are at most 1, where float16 is eight times finer than bfloat16.
        dtype = torch.float16 if device.type == "cuda" else None
        return CostEmbedding(weight[: self.head.tokens], dtype=dtype, device=device)

    def teacher(self, name: str) -> FrozenTeacher:
        if name == PRETRAINED:
            if not self.pretrained:
                raise no_pretrained_head()
            return FrozenTeacher(copy.deepcopy(self.model))
        if self.load_model is None:
            raise ModelError(f"The teacher {name} cannot be loaded here; take target={PRETRAINED}.")
        teacher = FrozenTeacher(self.load_model(name))
        self._check_rows(f"target={name}: its head", teacher.vocabulary, self.vocabulary)
        return teacher

    def language(self) -> DeviceLanguage:
        if self.known_language is None:
            raise unknown_language("the training corpus")
        self._check_rows("target=language: the oracle language", self.known_language.eos_id + 1, self.head.tokens)
        return DeviceLanguage(self.known_language, self.head.linear.weight.device)

    def _pretrained_weight(self) -> Tensor:
        if not self.pretrained:
            raise no_pretrained_head()
        return self.head.linear.weight.detach()

    def _check_rows(self, what: str, rows: int, expected: int) -> None:
        if rows != expected:
            raise ConfigError(
                f"{what} has {rows} rows; expected {expected}, the vocabulary of the model that is trained. "
                "Take a model with the same tokenizer."
            )


def no_pretrained_head() -> ConfigError:
    """Return the error for an objective that needs pre-trained weights when the model starts from scratch."""
    return ConfigError(
        "This objective reads pre-trained weights, and this model starts from scratch; give another source, such as "
        "--objective 'emo(cost=gpt2)' or 'kd-forward(target=gpt2)', or 'emo(cost=initial)' for the random head."
    )


def unknown_language(corpus: str) -> ConfigError:
    """Return the error for an objective that needs P(. | prefix) of a corpus without a known distribution."""
    return ConfigError(
        f"target=language takes P from the oracle language itself, and nobody knows the distribution of {corpus}; "
        "train on oracle-target or oracle-source with --model tiny-oracle, or give a teacher: target=MODEL."
    )
