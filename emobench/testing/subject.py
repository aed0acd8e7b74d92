"""An objective under test, with its random inputs and the random models that its `setup` reads.

The checks use a float64 head, to compare gradients exactly.

Legend: B sequences, T positions, N tokens, C tokens of a chunk, V vocabulary, D width, S states of a language.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from emobench.core.conformance import Explained
from emobench.core.errors import PluginError
from emobench.core.settings import PRETRAINED
from emobench.objectives import (
    IGNORED,
    CostEmbedding,
    LogitsObjective,
    ModelObjective,
    Objective,
    StatisticsObjective,
    next_labels,
    objective_loss,
)
from emobench.objectives.cost import GroundCost, ground_cost, is_embedding
from emobench.objectives.dense import LANGUAGE

CUT_OFF = "its loss has no gradient: `.detach()`, `.item()`, argmax or a comparison cut it off"

HIDDEN_GRADIENT, HEAD_GRADIENT = "gradient of the hidden states", "gradient of the head"
SUM = "sum of the losses"
SEQUENCES = 2
ALL = slice(None)
IGNORED_EVERY = 5
"""Every fifth label is ignored, as in a prompt or in padding."""


@dataclass
class EngineResult:
    """The result of one call of the engine. Its names are used in messages."""

    values: dict[str, Tensor]
    parts: dict[str, Tensor] = field(default_factory=dict)

    @property
    def by_token(self) -> list[str]:
        """The names of the values with one row for each token. The others are sums over tokens."""
        return [name for name in self.values if name not in (SUM, HEAD_GRADIENT)]


@dataclass
class CheckedObjective:
    """An objective under test. All random inputs are seeded and do not use the global generator."""

    objective: Objective
    tokens: int = 37
    width: int = 16
    vocabulary: int = 61
    seed: int = 0
    given_side: Mapping[str, Tensor] = field(default_factory=dict)
    tolerance: float | None = None
    """Relative error in float64. None: by the dtype of the objective's loss."""

    @property
    def name(self) -> str:
        return self.objective.name

    def given(self, **inputs: Any) -> Self:
        """Return a copy with other `hidden_ND`, `weight_VD`, `labels_N`, `side` or `ready`."""
        other = copy.copy(self)
        vars(other).update(inputs)
        return other

    @property
    def pretrained_VD(self) -> Tensor:
        """The head before training, which `setup` reads."""
        return self.normal(0, self.vocabulary, self.width)

    @cached_property
    def weight_VD(self) -> Tensor:
        return self.pretrained_VD

    @cached_property
    def hidden_ND(self) -> Tensor:
        return self.normal(1, self.tokens, self.width)

    @property
    def other_order(self) -> Tensor:
        """Another order of the tokens, (N,)."""
        return torch.randperm(self.tokens, generator=self._generator(0))

    @cached_property
    def batch(self) -> dict[str, Tensor]:
        """A batch as from the collator, with the columns of the objective's `example_side`."""
        shape = (SEQUENCES, -(-self.tokens // SEQUENCES))
        input_ids_BT = torch.randint(self.vocabulary, shape, generator=self._generator(2))
        labels_BT = input_ids_BT.clone()
        labels_BT.view(-1)[::IGNORED_EVERY] = IGNORED
        return self._batch(input_ids_BT, labels_BT)

    def _batch(self, input_ids_BT: Tensor, labels_BT: Tensor) -> dict[str, Tensor]:
        batch = {"input_ids": input_ids_BT, "attention_mask": torch.ones_like(input_ids_BT), "labels": labels_BT}
        example = getattr(self.objective, "example_side", None)
        if example is None:
            return batch
        return batch | dict(example(batch))

    @cached_property
    def labels_N(self) -> Tensor:
        return self._aligned(self.batch["labels"], IGNORED)

    @cached_property
    def ready(self) -> Objective:
        """The objective after `setup` and the first `begin_step`."""
        return self.fresh()[0]

    def fresh(self, objective: Objective | None = None) -> tuple[Objective, ExampleContext]:
        """Return a copy of an objective after `setup` and the first `begin_step`, and its context."""
        context = ExampleContext(self.pretrained_VD)
        ready = copy.deepcopy(self.objective if objective is None else objective)
        ready.setup(context)
        ready.begin_step(0, context.total_steps)
        return ready, context

    @cached_property
    def side(self) -> dict[str, Tensor]:
        """Side data of each token, (N, ...): from the caller, from `side_data`, or random numbers in [0, 1)."""
        return self.side_of(self.ready)

    @property
    def invented(self) -> list[str]:
        """The names of the side data that are replaced by random numbers."""
        missing = self.ready.side_names - set(self.given_side)
        return sorted(missing - set(self.ready.side_data(self.batch))) if missing else []

    def side_of(self, objective: Objective) -> dict[str, Tensor]:
        missing = sorted(objective.side_names - set(self.given_side))
        if not missing:
            return dict(self.given_side)
        side = dict(objective.side_data(self.batch))
        for i, name in enumerate(missing):
            if name not in side:
                column = torch.rand(self.batch["labels"].shape, generator=self._generator(10 + i), dtype=torch.float64)
                side |= objective.side_data({**self.batch, name: column})
        shape = tuple(self.batch["labels"].shape)
        for name, value in side.items():
            if tuple(value.shape[:2]) != shape:
                raise Explained(
                    f"its side data '{name}' has shape {tuple(value.shape)}; expected {shape} and more behind"
                )
        return {name: self._aligned(value, 0) for name, value in side.items()} | dict(self.given_side)

    def run(
        self,
        *,
        impl: str = "chunked",
        rows: slice | Tensor = ALL,
        chunk_rows: int | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> EngineResult:
        """Run the engine forward and backward on the inputs, or on some of their `rows`."""
        hidden, weight = self.leaves(rows, dtype)
        side = {name: value[rows] for name, value in self.side.items()}
        chunk_bytes = None if chunk_rows is None else 4 * self.vocabulary * chunk_rows
        labels = self.labels_N[rows]
        result = objective_loss(self.ready, hidden, weight, None, labels, side=side, impl=impl, chunk_bytes=chunk_bytes)
        return EngineResult({"loss": result.losses_N, **gradients_of(result.total, hidden, weight)}, result.parts)

    def leaves(self, rows: slice | Tensor = ALL, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
        """Return copies of the hidden states of some rows and of the head, as leaves of autograd."""
        hidden = self.hidden_ND[rows].to(dtype, copy=True)
        weight = self.weight_VD.to(dtype, copy=True)
        return hidden.requires_grad_(), weight.requires_grad_()

    def _aligned(self, value_BT: Tensor, fill: int) -> Tensor:
        """Shift each value to the position that predicts it, and flatten to tokens."""
        return next_labels(value_BT, fill).flatten(0, 1)[: self.tokens]

    def normal(self, stream: int, *shape: int) -> Tensor:
        """Return random numbers of a normal distribution; other streams have other ones."""
        return torch.randn(shape, generator=self._generator(stream), dtype=torch.float64)

    def _generator(self, stream: int) -> torch.Generator:
        return torch.Generator().manual_seed(1000 * self.seed + stream)


def gradients_of(total: Tensor, hidden: Tensor, weight: Tensor) -> dict[str, Tensor]:
    """Return the gradients of a sum of losses, by their names in `EngineResult`."""
    if not total.requires_grad:
        raise Explained(CUT_OFF)
    slopes = torch.autograd.grad(total, [hidden, weight], materialize_grads=True)
    return {HIDDEN_GRADIENT: slopes[0], HEAD_GRADIENT: slopes[1]}


def level(objective: Objective | type[Objective]) -> str:
    """Return "statistics", "logits" or "model". Raises PluginError for a class that is none of them."""
    cls = objective if isinstance(objective, type) else type(objective)
    levels = {"statistics": StatisticsObjective, "logits": LogitsObjective, "model": ModelObjective}
    for name, base in levels.items():
        if issubclass(cls, base):
            return name
    raise PluginError(
        f"{cls.__name__} is none of StatisticsObjective, LogitsObjective and ModelObjective; subclass one."
    )


def distance(value: Tensor, expected: Tensor) -> float:
    """Return the relative error in L2 norm."""
    value = value.detach().double()
    expected = expected.detach().double()
    return float((value - expected).norm() / expected.norm().clamp_min(1e-300))


@dataclass
class ExampleContext:
    """A `SetupContext` with a random head, and models of its device and dtype."""

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

    def cost_embedding(self, source: str = PRETRAINED) -> GroundCost:
        if source != "initial":
            self.read.add(source)
        if not is_embedding(source):
            return ground_cost(source, list(map(str, range(self.vocabulary))), self.weight_VD)
        # As in training: half precision on a GPU.
        return CostEmbedding(self.weight_VD, dtype=torch.float16 if self.weight_VD.is_cuda else None)

    def teacher(self, name: str) -> ExampleTeacher:
        self.read.add(name)
        return ExampleTeacher(self._random(1, *self.weight_VD.shape), self._random(2, *self.weight_VD.shape))

    def language(self) -> ExampleLanguage:
        self.read.add(LANGUAGE)
        return ExampleLanguage(self._random(3, 5, self.vocabulary).softmax(dim=-1).float())

    def snapshot(self) -> ExampleSnapshot:
        return ExampleSnapshot(self.weight_VD.new_zeros(()))

    def _random(self, seed: int, *shape: int) -> Tensor:
        drawn = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        return drawn.to(self.weight_VD)


@dataclass(frozen=True)
class ExampleTeacher:
    """A simple causal model: the hidden state of a position is the embedding of its token."""

    embedding_VD: Tensor
    head_VD: Tensor

    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        return self.embedding_VD[input_ids_BT]

    def logits(self, hidden_CH: Tensor) -> Tensor:
        return (hidden_CH.to(self.head_VD) @ self.head_VD.T).float()


@dataclass
class ExampleSnapshot:
    """A copy of a model. Its log-probabilities depend on the label, and on how often the copy was taken."""

    taken: Tensor

    def take(self) -> None:
        self.taken = self.taken + 1

    def log_prob(self, batch: Mapping[str, Tensor]) -> Tensor:
        return -(batch["labels"] % 7).to(self.taken) - self.taken

    def state(self) -> Mapping[str, Tensor]:
        return {"taken": self.taken}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self.taken = state["taken"]


@dataclass(frozen=True)
class ExampleLanguage:
    """A language whose next state depends on the last token alone."""

    emission_SV: Tensor

    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        weight_SBT = self.emission_SV[:, input_ids_BT]
        return (weight_SBT / weight_SBT.sum(dim=0)).movedim(0, -1)
