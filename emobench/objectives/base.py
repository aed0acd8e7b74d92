"""The base classes of objectives, and their contract.

Three levels, from least to most control:

    StatisticsObjective   a function of token statistics            gets the chunked engine for free
    LogitsObjective       a function of a chunk's logits            chunked
    ModelObjective        a function of the model and the batch     full control

Contract: `loss` returns one loss per unit (a target token or a sequence), in nats if the loss is a log-likelihood. It
never returns a mean. The trainer divides once, by the global sum of the weights. Gradient accumulation, padding and
data parallelism therefore do not change the gradient.

Lifecycle:
1. The constructor checks the parameters.
2. `setup(context)` runs once, after the pre-trained weights are loaded and before any step or resume.
3. `frozen_state()` returns the tensors that `setup` computed from those weights. Checkpoints store only their digests,
   and a resume compares them.
4. `state()` and `load_state()` save and restore what changes during training.

Legend: B sequences, T positions, N tokens, C tokens of a chunk, V vocabulary, H and D hidden width, S states.
"""

from __future__ import annotations

import dataclasses
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, dataclass_transform, get_type_hints

from torch import Tensor

from emobench.core.errors import ConfigError, PluginError
from emobench.core.settings import PRETRAINED, check_settings, convert, setting
from emobench.data.packing import WEIGHTS
from emobench.models.device import with_float64
from emobench.objectives.cost import GroundCost
from emobench.objectives.engine.targets import IGNORED
from emobench.objectives.statistics import STATISTICS, TokenStatistics

OLD = "old_log_prob"
"""The side data of a `SnapshotObjective`."""
SNAPSHOT = "snapshot"


class Teacher(Protocol):
    """A frozen causal LM with the same vocabulary as the trained model."""

    def hidden(self, input_ids_BT: Tensor, attention_mask_BT: Tensor | None = None) -> Tensor:
        """Return the final hidden states, (B, T, H), without gradients. Position t predicts token t + 1."""
        ...

    def logits(self, hidden_CH: Tensor) -> Tensor:
        """Return the float32 logits of a chunk of hidden states, (C, V)."""
        ...


class KnownLanguage(Protocol):
    """A language with a known distribution: P(. | prefix) = state_probs @ emission."""

    @property
    def emission_SV(self) -> Tensor:
        """Probability of each token in each hidden state, (S, V), float32, on the model's device."""
        ...

    def state_probs(self, input_ids_BT: Tensor) -> Tensor:
        """Return P(state that emits token t + 1 | tokens 0..t), (B, T, S), float32."""
        ...


class Snapshot(Protocol):
    """The trained model with its weights of an earlier step."""

    def take(self) -> None:
        """Copy the weights that the model has now."""
        ...

    def log_prob(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return log q_t of each label in nats, (B, T), in eval mode, without gradients. 0 where there is no target."""
        ...

    def state(self) -> Mapping[str, Tensor]:
        """Return the copied weights by their names, for a checkpoint."""
        ...

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the weights that `state` returned."""
        ...


class SetupContext(Protocol):
    """What `Objective.setup` can read of the run: the model, its length, teachers, the language of the corpus."""

    @property
    def total_steps(self) -> int:
        """Number of optimizer steps of the whole training, for schedules."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of rows of the model's LM head."""
        ...

    def head_weight(self) -> Tensor:
        """Return the pre-trained LM head, (V, D), detached. Raises UserError if the model is trained from scratch."""
        ...

    def cost_embedding(self, source: str = "pretrained") -> GroundCost:
        """Return a frozen ground cost. `source` is a parameter `cost`; see `emobench.objectives.cost`."""
        ...

    def teacher(self, name: str) -> Teacher:
        """Return a frozen model, by name or folder. "pretrained" is a copy of the trained model before training."""
        ...

    def language(self) -> KnownLanguage:
        """Return the distribution of the training corpus. Raises ConfigError if it is not known."""
        ...

    def snapshot(self) -> Snapshot:
        """Return a copy of the trained model's weights, which is empty until its first `take`."""
        ...


# `param` is not a field specifier here: a type checker would then see no default in `param(0.1)`.
@dataclass_transform(kw_only_default=True)
class Objective:
    """Base of all objectives. Annotated class attributes are its parameters; see `emobench.param`."""

    name: ClassVar[str] = ""
    """The name for `--objective`. Default: the class name in kebab case."""
    version: ClassVar[str] = "1"
    """Raise it when the meaning changes: entries of different versions are not compared."""
    needs: ClassVar[set[str] | frozenset[str]] = frozenset()
    """Names of the statistics and of the side data that `loss` reads. `log_prob` is always available."""
    adaptive_cost: ClassVar[bool] = False
    """True: `expected_cost` uses the head as it is trained. False: it uses a frozen cost embedding."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        if cls.name == PRETRAINED:
            raise PluginError(
                f"{cls.__name__}: '{PRETRAINED}' stands for a model as it is; give the objective another name."
            )
        needs: Any = cls.needs
        if not isinstance(needs, (set, frozenset)) or not all(isinstance(name, str) for name in needs):
            raise PluginError(f"{cls.__name__}: `needs` is {needs!r}; expected a set of names, such as {{'entropy'}}.")

    def __post_init__(self) -> None:
        """Convert each parameter to its annotated type. Raises ConfigError if one is out of its range."""
        label = f"objective {self.name}"
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = convert(hints[field.name], getattr(self, field.name), f"{label}: `{field.name}`")
            if isinstance(value, float) and not math.isfinite(value):
                raise ConfigError(f"{label}: `{field.name}` is {value}; expected a finite number.")
            setattr(self, field.name, value)
        try:
            check_settings(self)
        except ConfigError as error:
            raise ConfigError(f"{label}: {error}") from None

    @property
    def params(self) -> dict[str, Any]:
        """The values of the parameters, by name."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        given = ", ".join(f"{f.name}={v}" for f in fields if (v := getattr(self, f.name)) != f.default)
        return f"{self.name}({given})" if given else self.name

    @property
    def reads(self) -> tuple[str, ...]:
        """The models whose weights `setup` reads: names, folders, or "pretrained" (the trained model before training).

        They are checked when a run is planned, and they are part of its key. So are ground costs that are no models.
        """
        return ()

    @property
    def copies(self) -> tuple[str, ...]:
        """The copies of the trained model that it keeps, for the memory plan: "pretrained" (whole) or `SNAPSHOT`."""
        return ()

    @property
    def scheduled(self) -> bool:
        """Whether the loss has another meaning at each step, so that its validation losses cannot be compared."""
        return type(self).begin_step is not Objective.begin_step

    def setup(self, context: SetupContext) -> None:
        """Prepare the objective. Called once, after the pre-trained weights are loaded and before any step."""

    def begin_step(self, step: int, total_steps: int) -> None:
        """Receive the number of finished steps before each optimizer step, for schedules, and after a resume."""

    def frozen_state(self) -> Mapping[str, Tensor]:
        """Return the tensors that `setup` computed from the pre-trained weights. Checkpoints store their digests."""
        return {}

    def state(self) -> Mapping[str, Tensor]:
        """Return the tensors that change during training. They are saved in every checkpoint."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned."""

    def total_weight(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the sum of the units' weights in a micro-batch, before the model runs.

        Default: the number of target tokens, or the sum of their examples' weights if the batch has them.
        """
        targets_BT = batch["labels"][:, 1:] != IGNORED
        if WEIGHTS not in batch:
            return targets_BT.sum()
        return (with_float64(batch[WEIGHTS])[:, 1:].double() * with_float64(targets_BT)).sum()

    def side_data(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return extra tensors per token, (B, T, ...), aligned with `batch["labels"]`. Default: the columns in `needs`.

        `loss` reads them as `s.side[name]`, selected and ordered like the tokens of its chunk.
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

    @property
    def columns(self) -> frozenset[str]:
        """The side data that are columns of the corpus: all, unless the class computes its own in `side_data`."""
        return self.side_names if type(self).side_data is Objective.side_data else frozenset()


class StatisticsObjective(Objective, ABC):
    """An objective that is a function of token statistics. It runs in the chunked engine without further code.

    If `needs` contains `expected_cost`, `setup` takes a frozen ground cost. It is that of the pre-trained head, unless
    the objective has a parameter `cost`; `emobench.objectives.cost` lists its values.
    """

    cost_embedding: ClassVar[GroundCost | None] = None

    @abstractmethod
    def loss(self, s: TokenStatistics) -> Tensor:
        """Return the loss of each token, (N,). The loss of token i may depend only on the statistics of token i."""

    def slopes(self, s: TokenStatistics) -> Mapping[str, Tensor] | None:
        """Return d loss / d statistic by the statistic's name, each (N,). None: the engine uses autograd.

        This is optional. It saves the engine about forty small operations for each chunk of tokens.
        """
        return None

    def parts(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        """Return further values to log, each (N,). They are averaged, or summed if the name ends in `_count`."""
        return {}

    @property
    def reads(self) -> tuple[str, ...]:
        source = self._cost_source
        return () if source in (None, "initial") else (source,)

    def setup(self, context: SetupContext) -> None:
        """Take the frozen ground cost if the objective needs `expected_cost`."""
        if self._cost_source is not None:
            self.use_cost(context.cost_embedding(self._cost_source))

    @property
    def _cost_source(self) -> str | None:
        if "expected_cost" not in self.needs or self.adaptive_cost:
            return None
        return getattr(self, "cost", PRETRAINED)

    def use_cost(self, cost: GroundCost) -> None:
        """Set the ground cost."""
        vars(self)["cost_embedding"] = cost

    def frozen_state(self) -> Mapping[str, Tensor]:
        """Return the cost embedding's rows."""
        return {} if self.cost_embedding is None else {"cost_embedding": self.cost_embedding.rows_VE}


class SnapshotObjective(StatisticsObjective, ABC):
    """An objective that also reads log q_t of an earlier copy of the trained model: `s.side["old_log_prob"]`, (N,).

    The weights are copied before the first step, and again after every `every` steps. They are part of checkpoints.
    With adapters, these are the adapters' weights. A subclass that needs more adds it to these `needs`.
    """

    needs = frozenset({OLD})
    every: int = setting(8, low=1, help="optimizer steps from one copy of the model to the next")
    snapshot: ClassVar[Snapshot | None] = None

    @property
    def copies(self) -> tuple[str, ...]:
        return (SNAPSHOT,)

    @property
    def columns(self) -> frozenset[str]:
        return self.side_names - {OLD}

    def setup(self, context: SetupContext) -> None:
        """Prepare the copy."""
        super().setup(context)
        vars(self)["snapshot"] = context.snapshot()

    def begin_step(self, step: int, total_steps: int) -> None:
        """Copy the weights if a copy is due."""
        if step % self.every == 0:
            self._copy.take()

    def state(self) -> Mapping[str, Tensor]:
        """Return the copied weights."""
        return self._copy.state()

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        self._copy.load_state(state)

    def side_data(self, batch: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the copy's log q_t of each label, and the columns in `needs`."""
        return {**super().side_data(batch), OLD: self._copy.log_prob(batch)}

    @property
    def _copy(self) -> Snapshot:
        if self.snapshot is None:
            raise PluginError(f"{self.name} has no copy of the model; call setup() first.")
        return self.snapshot


class WeightedLikelihood(StatisticsObjective, ABC):
    """-w log q_t: the log-likelihood with a weight for each token. The weight is a constant for autograd."""

    @abstractmethod
    def weight(self, s: TokenStatistics) -> Tensor:
        """Return the weight of each token, (N,), without gradients."""

    def loss(self, s: TokenStatistics) -> Tensor:
        return -self.weight(s) * s.log_prob

    def slopes(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        return {"log_prob": -self.weight(s)}

    def parts(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        return {"weight": self.weight(s)}


class LogitsObjective(Objective, ABC):
    """An objective that is a differentiable function of the logits of a chunk of tokens."""

    @abstractmethod
    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        """Return the loss of each token, (N,), from float32 logits (N, V). N is the size of a chunk, not of a batch."""

    def parts(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return further values to log, each (N,). They are averaged, or summed if the name ends in `_count`."""
        return {}


@dataclasses.dataclass(frozen=True)
class UnitLosses:
    """Losses of units and their weights, both (U,). Their weights must sum to `Objective.total_weight(batch)`."""

    losses_U: Tensor
    weights_U: Tensor


class ModelObjective(Objective, ABC):
    """An objective with full control: it gets the model and the batch."""

    @abstractmethod
    def loss(self, model: Any, batch: Mapping[str, Tensor]) -> UnitLosses:
        """Return the losses of the batch's units. `model(**inputs)` calls the model's own forward."""
