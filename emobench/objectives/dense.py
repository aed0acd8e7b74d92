"""Objectives against a dense target distribution P(. | prefix), instead of the one token that came next.

Legend: B sequences, T positions, C tokens of a chunk, S states of a language, H width of a teacher, V vocabulary.

P is a frozen teacher's, or the known one of a language. The side data are what P is made from, (B, T, H) or (B, T, S),
once for each batch; P itself, (C, V), lives as long as a chunk.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.errors import PluginError
from emobench.objectives.base import KnownLanguage, LogitsObjective, SetupContext, Teacher
from emobench.objectives.parameters import param

LANGUAGE = "language"
"""A reserved name of what an objective reads: the known distribution of the training corpus."""
SIDE = "dense_target"


class DenseTargetObjective(LogitsObjective):
    """Any differentiable function of log Q and log P of a chunk. Subclasses write `dense_loss`.

    Without `setup`, the side data `dense_target` are the logits of P themselves, (tokens, V).
    """

    needs = frozenset({SIDE})
    target: str = param(
        LANGUAGE,
        help="P: language (the oracle language's own), pretrained (the model before training), or a model's name "
        "or folder",
    )
    teacher: ClassVar[Teacher | None] = None
    language: ClassVar[KnownLanguage | None] = None

    @abstractmethod
    def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
        """Return the loss of each token, (C,), from log Q with gradients and log P without, both float32, nats.

        A token of no probability has log P = -inf.
        """

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.target,)

    def setup(self, context: SetupContext) -> None:
        """Take the teacher or the language that `target` names."""
        if self.target == LANGUAGE:
            vars(self)["language"] = context.language()
        else:
            vars(self)["teacher"] = context.teacher(self.target)

    def frozen_state(self) -> Mapping[str, Tensor]:
        """Return the language's emissions. A teacher is known by the training's key, which holds its digest."""
        return {} if self.language is None else {"emission": self.language.emission_SV}

    @torch.no_grad()
    def side_data(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what P of each label is made from: the teacher's final hidden states, or the language's states."""
        ids_BT = batch["input_ids"]
        if self.teacher is not None:
            next_BTX = self.teacher.hidden(ids_BT, batch.get("attention_mask"))
        elif self.language is not None:
            next_BTX = self.language.state_probs(ids_BT)
        else:
            raise PluginError(f"{self.name} has no target distribution; call setup() first.")
        # From the position that predicts to the label that it predicts; nothing predicts the first one.
        return {SIDE: F.pad(next_BTX[:, :-1], (0, 0, 1, 0))}

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        log_p_NV = self._log_target(side[SIDE], logits_NV)
        if log_p_NV.shape != logits_NV.shape:
            raise PluginError(
                f"{self.name}: P has shape {tuple(log_p_NV.shape)}; expected {tuple(logits_NV.shape)}, that of the "
                f"logits. Give the side data '{SIDE}' as (tokens, {logits_NV.shape[1]}), or call setup()."
            )
        return self.dense_loss(logits_NV.log_softmax(dim=-1), log_p_NV, targets_N)

    @torch.no_grad()
    def _log_target(self, side_CX: Tensor, like_CV: Tensor) -> Tensor:
        if self.language is not None:
            return (side_CX.to(like_CV.dtype) @ self.language.emission_SV.to(like_CV.dtype)).log_()
        if self.teacher is not None:
            # Rows of the teacher's head behind the vocabulary are padding and take no mass.
            side_CX = self.teacher.logits(side_CX)[:, : like_CV.shape[1]]
        return side_CX.to(like_CV.dtype).log_softmax(dim=-1)
