"""Objectives that compare the model with a whole distribution P(. | prefix), instead of the next token only.

Legend: B sequences, T positions, C tokens of a chunk, S states of a language, H width of a teacher, V vocabulary.

P is the distribution of a frozen teacher or of a known language. The side data of a batch are the hidden states or the
state probabilities from which P follows, (B, T, H) or (B, T, S). P itself, (C, V), is computed for one chunk at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.core.errors import PluginError
from emobench.core.settings import PRETRAINED, setting
from emobench.objectives.base import KnownLanguage, LogitsObjective, SetupContext, Teacher

LANGUAGE = "language"
"""A reserved name in `Objective.reads`: the known distribution of the training corpus."""
SIDE = "dense_target"


class DenseTargetObjective(LogitsObjective):
    """A differentiable function of log Q and log P of a chunk. Subclasses define `dense_loss`.

    If `setup` was not called, the side data `dense_target` must be the logits of P, (tokens, V).
    """

    needs = frozenset({SIDE})
    target: str = setting(
        LANGUAGE,
        help="P: language (the oracle language's own), pretrained (the model before training), or a model's name "
        "or folder",
    )
    teacher: ClassVar[Teacher | None] = None
    language: ClassVar[KnownLanguage | None] = None

    @abstractmethod
    def dense_loss(self, log_q_CV: Tensor, log_p_CV: Tensor, targets_C: Tensor) -> Tensor:
        """Return the loss of each token, (C,). log Q has gradients and log P has none; both are float32, in nats.

        A token of probability 0 has log P = -inf.
        """

    @property
    def reads(self) -> tuple[str, ...]:
        return (self.target,)

    @property
    def copies(self) -> tuple[str, ...]:
        return self.reads if self.target == PRETRAINED else ()

    def setup(self, context: SetupContext) -> None:
        """Load the teacher or the language that `target` names."""
        if self.target == LANGUAGE:
            vars(self)["language"] = context.language()
        else:
            vars(self)["teacher"] = context.teacher(self.target)

    def frozen_state(self) -> Mapping[str, Tensor]:
        """Return the language's emissions. A teacher's digest is part of the training's key instead."""
        return {} if self.language is None else {"emission": self.language.emission_SV}

    @torch.no_grad()
    def side_data(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the teacher's final hidden states, or the language's state probabilities, for each label."""
        ids_BT = batch["input_ids"]
        if self.teacher is not None:
            next_BTX = self.teacher.hidden(ids_BT, batch.get("attention_mask"))
        elif self.language is not None:
            next_BTX = self.language.state_probs(ids_BT)
        else:
            raise PluginError(f"{self.name} has no target distribution; call setup() first.")
        # Shift from the position that predicts to the label that it predicts. No position predicts the first label.
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
            # Rows of the teacher's head after the vocabulary are padding and get no probability mass.
            side_CX = self.teacher.logits(side_CX)[:, : like_CV.shape[1]]
        return side_CX.to(like_CV.dtype).log_softmax(dim=-1)
