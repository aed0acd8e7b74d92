"""The `SetupContext` of the kit: random models with the device and the dtype of a random head.

The checks use a float64 head, to compare gradients exactly.

Legend: B sequences, T positions, C tokens of a chunk, V vocabulary, D width, S states of a language.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from emobench.core.settings import PRETRAINED
from emobench.objectives import CostEmbedding
from emobench.objectives.dense import LANGUAGE
from emobench.objectives.engine.products import accumulator_dtype, multiply_wide


@dataclass
class ExampleContext:
    """A `SetupContext` with a random head. It records the models that an objective reads."""

    weight_VD: Tensor
    total_steps: int = 8
    read: set[str] = field(default_factory=set)
    """The models that the objective read, as in `Objective.reads`."""

    @property
    def vocabulary(self) -> int:
        return len(self.weight_VD)

    def head_weight(self) -> Tensor:
        self.read.add(PRETRAINED)
        return self.weight_VD.clone()

    def cost_embedding(self, source: str = PRETRAINED) -> CostEmbedding:
        if source != "initial":
            self.read.add(source)
        # As in training: half precision on a GPU.
        return CostEmbedding(self.weight_VD, dtype=torch.float16 if self.weight_VD.is_cuda else None)

    def teacher(self, name: str) -> ExampleTeacher:
        self.read.add(name)
        return ExampleTeacher(self._random(1, *self.weight_VD.shape), self._random(2, *self.weight_VD.shape))

    def language(self) -> ExampleLanguage:
        self.read.add(LANGUAGE)
        return ExampleLanguage(self._random(3, 5, self.vocabulary).softmax(dim=-1).float())

    def _random(self, seed: int, *shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return drawn.to(self.weight_VD)


@dataclass(frozen=True)
class ExampleTeacher:
    """A simple causal model: the hidden state of a position is the mean of the embeddings up to it."""

    embedding_VD: Tensor
    head_VD: Tensor

    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        sums_BTD = self.embedding_VD[input_ids_BT].cumsum(dim=1)
        return sums_BTD / torch.arange(1, input_ids_BT.shape[1] + 1, device=sums_BTD.device)[:, None]

    def logits(self, hidden_CH: Tensor) -> Tensor:
        out_CV = self.head_VD.new_empty(len(hidden_CH), len(self.head_VD), dtype=accumulator_dtype(self.head_VD.dtype))
        multiply_wide(hidden_CH.to(self.head_VD.dtype), self.head_VD, out_CV)
        return out_CV.float()


@dataclass(frozen=True)
class ExampleLanguage:
    """A hidden Markov model. With probability 1/2 it keeps its state, else all states are equally likely."""

    emission_SV: Tensor

    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        states = len(self.emission_SV)
        now_BS = self.emission_SV.new_full((len(input_ids_BT), states), 1 / states)
        steps = []
        for ids_B in input_ids_BT.T:
            now_BS = now_BS * self.emission_SV[:, ids_B].T
            now_BS = 0.5 * now_BS / now_BS.sum(dim=1, keepdim=True) + 0.5 / states
            steps.append(now_BS)
        return torch.stack(steps, dim=1)
