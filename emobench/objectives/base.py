"""The base classes of objectives, and their contract.

Three levels, from least to most control:

    StatisticsObjective   a function of token statistics            gets the chunked engine for free
    LogitsObjective       a function of a chunk's logits            chunked
    ModelObjective        a function of the model and the batch     whole control

Contract: `loss` returns one loss per unit (a target token, or a sequence), in nats where that has a meaning, and never
a mean: the trainer divides once, by the global sum of weights, so that gradient accumulation, padding and data
parallelism leave the gradient unchanged.

Lifecycle: the constructor checks the parameters; `setup(context)` runs once, after the pre-trained weights are loaded
and before any step or resume; `frozen_state()` names the tensors that `setup` made from them (only their digests go
into checkpoints, and are compared on resume); `state()` and `load_state()` carry what changes while training.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, dataclass_transform

from torch import Tensor

from emobench.config import PRETRAINED
from emobench.errors import PluginError
from emobench.objectives.cost import CostEmbedding
from emobench.objectives.engine.targets import IGNORED
from emobench.objectives.parameters import check_parameters
from emobench.objectives.statistics import STATISTICS, TokenStatistics, check_needs


class Teacher(Protocol):
    """A frozen causal LM with the vocabulary of the trained one."""

    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        """Return the final hidden states, (B, T, H); position t predicts token t + 1. No gradients."""
        ...

    def logits(self, hidden_CH: Tensor) -> Tensor:
        """Return the float32 logits of a chunk of hidden states, (C, V)."""
        ...


class KnownLanguage(Protocol):
    """A language whose distribution P is known: P(. | prefix) = state_probs @ emission."""

    @property
    def emission_SV(self) -> Tensor:
        """Probability of each token in each hidden state, (S, V), float32, on the model's device."""
        ...

    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        """Return P(state that emits token t + 1 | tokens 0..t), (B, T, S), float32."""
        ...


class SetupContext(Protocol):
    """What `Objective.setup` may ask for."""

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the whole training, for schedules."""
        ...

    @property
    def vocabulary(self) -> int:
        """Rows of the model's head."""
        ...

    def head_weight(self) -> Tensor:
        """Return the pre-trained LM head, (V, D), detached. From scratch there is none: raises UserError."""
        ...

    def cost_embedding(self, source: str = "pretrained") -> CostEmbedding:
        """Return the frozen cost embedding: of the `pretrained` head, the `initial` one, or the head of a model."""
        ...

    def teacher(self, name: str) -> Teacher:
        """Return a frozen model, by name or folder; "pretrained" is the trained model as it is now, copied."""
        ...

    def language(self) -> KnownLanguage:
        """Return the known distribution of the training corpus. Raises ConfigError where nobody knows it."""
        ...


# `param` is not named as a field specifier: a checker would then see no default in `param(0.1)`.
@dataclass_transform(kw_only_default=True)
class Objective:
    """Base of all objectives. Annotated class attributes are its parameters; see `emobench.param`."""

    name: ClassVar[str] = ""
    """The name that `--objective` takes; the class name in kebab case unless given."""
    version: ClassVar[str] = "1"
    """Goes up when the meaning changes, so that old entries are not compared with new ones."""
    needs: ClassVar[set[str] | frozenset[str]] = frozenset()
    """Names of statistics and of side data that `loss` reads. `log_prob` is always there."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        if cls.name == PRETRAINED:
            raise PluginError(
                f"{cls.__name__}: '{PRETRAINED}' stands for a model as it is; give the objective another name."
            )
        check_needs(cls.needs, cls.__name__)

    def __post_init__(self) -> None:
        check_parameters(self, f"objective {self.name}")

    @property
    def params(self) -> dict[str, Any]:
        """The parameters in force, by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = ", ".join(f"{f.name}={v}" for f in fields if (v := getattr(self, f.name)) != f.default)
        return f"{self.name}({given})" if given else self.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The models whose weights `setup` reads: "pretrained" for the trained model before training, names or folders.

        They are checked when a run is planned, and belong to its key.
        """
        return ()

    def setup(self, context: SetupContext) -> None:
        """Prepare once, with the pre-trained weights loaded and before any step."""

    def begin_step(self, step: int, total_steps: int) -> None:
        """Hear, before each optimizer step, how many came before it; for schedules. Called again after a resume."""

    def frozen_state(self) -> Mapping[str, Tensor]:
        """Return what `setup` made from the pre-trained weights; checkpoints keep its digests only."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """Return what changes while training; saved in every checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` returned."""

    def total_weight(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the sum of the units' weights in a micro-batch, before the model runs; default: its target tokens."""
        return (batch["labels"][:, 1:] != IGNORED).sum()

    def side_data(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return extra tensors per token, (B, T, ...), aligned with `batch["labels"]`; default: columns in `needs`.

        They reach `loss` as `s.side[name]`, compacted and reordered with the tokens.
        """
        return {name: batch[name] for name in self.side_names if name in batch}

    @property
    def statistic_names(self) -> frozenset[str]:
        """The statistics in `needs`, and `log_prob`."""
        return frozenset(n for n in self.needs if n in STATISTICS) | {"log_prob"}

    @property
    def side_names(self) -> frozenset[str]:
        """The side data in `needs`."""
        return frozenset(self.needs) - frozenset(STATISTICS)


class StatisticsObjective(Objective, ABC):
    """An objective that is a function of token statistics; it runs in the chunked engine with no further code.

    With `expected_cost` among its needs it takes its frozen cost embedding from the pre-trained head, or from where its
    parameter `cost` says, if it has one: "pretrained", "initial", or a model's name or folder.
    """

    cost_embedding: ClassVar[CostEmbedding | None] = None
    adaptive_cost: ClassVar[bool] = False
    """Whether `expected_cost` follows the head as it is trained, instead of a frozen cost embedding."""

    @abstractmethod
    def loss(self, s: TokenStatistics) -> Tensor:
        """Return the loss of each token, (N,). Token i's loss may depend on token i's statistics only."""

    def slopes(self, s: TokenStatistics) -> Mapping[str, Tensor] | None:
        """Return d loss / d statistic of each token, (N,) each, by the statistic's name; None: autograd finds them.

        An optional short cut: it spares the engine some forty small operations for each chunk of tokens.
        """
        return None

    def parts(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        """Return what to log beside the loss, each (N,): as means, or as sums where the name ends in `_count`."""
        return {}

    @property
    def reads(self) -> tuple[str, ...]:
        source = self._cost_source
        return () if source in (None, "initial") else (source,)

    def setup(self, context: SetupContext) -> None:
        """Take the frozen cost embedding, if `expected_cost` is needed."""
        if self._cost_source is not None:
            self.use_cost(context.cost_embedding(self._cost_source))

    @property
    def _cost_source(self) -> str | None:
        if "expected_cost" not in self.needs or self.adaptive_cost:
            return None
        return getattr(self, "cost", PRETRAINED)

    def use_cost(self, cost: CostEmbedding) -> None:
        """Use this cost embedding from now on."""
        vars(self)["cost_embedding"] = cost

    def frozen_state(self) -> Mapping[str, Tensor]:
        """Return the cost embedding's rows."""
        return {} if self.cost_embedding is None else {"cost_embedding": self.cost_embedding.rows_VE}


class WeightedLikelihood(StatisticsObjective, ABC):
    """-w log q_t, with a weight of each token that is a constant: a likelihood that counts some tokens for more."""

    @abstractmethod
    def weight(self, s: TokenStatistics) -> Tensor:
        """Return the weight of each token, (N,), detached."""

    def loss(self, s: TokenStatistics) -> Tensor:
        return -self.weight(s) * s.log_prob

    def slopes(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        return {"log_prob": -self.weight(s)}

    def parts(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        return {"weight": self.weight(s)}


class LogitsObjective(Objective, ABC):
    """An objective that is any differentiable function of the logits of a chunk of tokens."""

    @abstractmethod
    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of each token, (N,), from float32 logits (N, V). N is a chunk, not a batch."""

    def parts(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return what to log beside the loss, each (N,): as means, or as sums where the name ends in `_count`."""
        return {}


@dataclasses.dataclass(frozen=True)
class UnitLosses:
    """Losses of units and their weights, both (U,). Their weights must sum to `Objective.total_weight(batch)`."""

    losses_U: Tensor
    weights_U: Tensor


class ModelObjective(Objective, ABC):
    """An objective with whole control: it gets the model and the batch."""

    @abstractmethod
    def loss(self, model: Any, batch: Mapping[str, Tensor]) -> UnitLosses:
        """Return the losses of the batch's units; `model(**inputs)` is the model's own forward."""
