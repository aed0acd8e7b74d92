"""Combinations of objectives: sum_i w_i L_i. The weights may depend on the progress of the training.

A combination of StatisticsObjectives is a StatisticsObjective and is as fast: its loss and its slopes are weighted
sums. If one term is a LogitsObjective, the combination is a LogitsObjective; it computes the statistics of the other
terms from the logits of a chunk. Legend: N tokens of a chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, ClassVar

import torch
from torch import Tensor

from emobench.core.errors import ConfigError
from emobench.core.settings import PRETRAINED
from emobench.models.device import with_float64
from emobench.objectives.base import LogitsObjective, Objective, SetupContext, StatisticsObjective
from emobench.objectives.cost import GroundCost
from emobench.objectives.expression import Constant, Schedule
from emobench.objectives.statistics import TokenStatistics, statistics_from_logits

COST = "expected_cost"


@dataclass(frozen=True)
class WeightedObjective:
    """One term. `label` is its name in logs and checkpoints. `side` maps its side data's names to the combination's."""

    objective: Objective
    weight: Schedule
    label: str
    side: Mapping[str, str]

    def __str__(self) -> str:
        weight = str(self.weight)
        return repr(self.objective) if weight == "1" else f"{weight}*{self.objective!r}"

    def statistics(self, s: TokenStatistics) -> TokenStatistics:
        """Return the same statistics, with the side data under the term's own names."""
        if not self.side:
            return s
        return TokenStatistics(s.values, s.targets, self.own_side(s.side))

    def own_side(self, side: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the side data under the term's own names."""
        return {**side, **{own: side[shared] for own, shared in self.side.items()}}


def two_costs(names: str) -> ConfigError:
    """Return the error for terms that use different cost embeddings."""
    return ConfigError(
        f"{names} take their costs from different embeddings, and a combination computes `expected_cost` once; "
        "give every term the same one, such as cost=gpt2."
    )


def is_adaptive(objective: Objective) -> bool:
    """Return whether an objective computes its costs from the head as it is trained."""
    return objective.adaptive_cost and COST in objective.needs


class Combination(Objective):
    """Base of all combinations. Everything except the loss is delegated to the terms."""

    terms: tuple[WeightedObjective, ...]

    def __post_init__(self) -> None:
        self.progress = 0.0
        members = [term.objective for term in self.terms]
        # Other objectives set these as class variables; here they depend on the terms.
        own = vars(self)
        own["name"] = " + ".join(map(str, self.terms))
        own["version"] = "+".join(member.version for member in members)
        own["adaptive_cost"] = any(is_adaptive(member) for member in members)
        needs: set[str] = set()
        for term in self.terms:
            needs |= {term.side.get(name, name) for name in term.objective.needs}
        own["needs"] = frozenset(needs)

    def __repr__(self) -> str:
        return self.name

    @property
    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = {}
        for term in self.terms:
            params |= {f"{term.label}.{name}": value for name, value in term.objective.params.items()}
        return params

    @property
    def reads(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        for term in self.terms:
            names |= dict.fromkeys(term.objective.reads)
        return tuple(names)

    @property
    def copies(self) -> tuple[str, ...]:
        return tuple(chain.from_iterable(term.objective.copies for term in self.terms))

    @property
    def columns(self) -> frozenset[str]:
        return frozenset[str]().union(*(term.objective.columns for term in self.terms))

    def setup(self, context: SetupContext) -> None:
        """Set up every term; teachers and cost embeddings are shared. Raises ConfigError for two cost embeddings."""
        shared: Any = _SharedContext(context)
        for term in self.terms:
            term.objective.setup(shared)
        costs = [cost for objective in self._costly() if (cost := objective.cost_embedding) is not None]
        if any(cost is not costs[0] for cost in costs):
            raise two_costs(self.name)
        if costs:
            vars(self)["cost_embedding"] = costs[0]

    def use_cost(self, cost: GroundCost) -> None:
        """Set the ground cost of every term that reads `expected_cost`."""
        vars(self)["cost_embedding"] = cost
        for objective in self._costly():
            objective.use_cost(cost)

    def begin_step(self, step: int, total_steps: int) -> None:
        self.progress = min(step / max(total_steps - 1, 1), 1.0)
        for term in self.terms:
            term.objective.begin_step(step, total_steps)

    def frozen_state(self) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for term in self.terms:
            for name, value in term.objective.frozen_state().items():
                if all(value is not other for other in tensors.values()):  # list a shared cost embedding once
                    tensors[f"{term.label}.{name}"] = value
        return tensors

    def state(self) -> dict[str, Tensor]:
        # Terms are numbered: one label may be the beginning of another.
        tensors: dict[str, Tensor] = {}
        for number, term in enumerate(self.terms):
            tensors |= {f"{number}.{name}": value for name, value in term.objective.state().items()}
        return tensors

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        for i, term in enumerate(self.terms):
            own = {n.partition(".")[2]: v for n, v in state.items() if n.partition(".")[0] == str(i)}
            if own:
                term.objective.load_state(own)

    def total_weight(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.terms[0].objective.total_weight(batch)

    def side_data(self, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        side: dict[str, Tensor] = {}
        for term in self.terms:
            side |= {term.side.get(n, n): v for n, v in term.objective.side_data(batch).items()}
        return side

    @property
    def weights(self) -> list[float]:
        """The weights of the terms at this step."""
        return [term.weight(self.progress) for term in self.terms]

    @property
    def scheduled(self) -> bool:
        """Whether a weight or a term changes during training. The loss then has another meaning at each step."""
        return any(term.objective.scheduled or not isinstance(term.weight, Constant) for term in self.terms)

    def _costly(self) -> list[StatisticsObjective]:
        members = [term.objective for term in self.terms if COST in term.objective.needs]
        return [member for member in members if isinstance(member, StatisticsObjective)]

    def _results(self, method: str, s: TokenStatistics, logits_NV: Tensor | None = None) -> Iterator[Any]:
        """Call a method of every term, with statistics or with logits as the term expects."""
        for term in self.terms:
            call = getattr(term.objective, method)
            if isinstance(term.objective, StatisticsObjective):
                yield call(term.statistics(s))
            else:
                yield call(logits_NV, s.targets, term.own_side(s.side))

    def _weighted(self, s: TokenStatistics, logits_NV: Tensor | None = None) -> Tensor:
        """Return the weighted sum of the terms' losses."""
        first, *others = self._results("loss", s, logits_NV)
        total = self.weights[0] * first
        for weight, loss_N in zip(self.weights[1:], others, strict=True):
            total = total + weight * loss_N
        return total

    def _parts(self, s: TokenStatistics, logits_NV: Tensor | None = None) -> dict[str, Tensor]:
        """Return each term's loss, its weight as `share`, and its parts. A name that two terms share gets the label."""
        losses = self._results("loss", s, logits_NV)
        own = list(self._results("parts", s, logits_NV))
        names = list(chain.from_iterable(own))
        logged: dict[str, Tensor] = {}
        for term, weight, loss_N, parts in zip(self.terms, self.weights, losses, own, strict=True):
            logged[f"{term.label}.share"] = with_float64(loss_N).new_full(loss_N.shape, weight, dtype=torch.float64)
            logged[f"{term.label}.loss"] = loss_N
            logged |= {n if names.count(n) == 1 else f"{term.label}.{n}": v for n, v in parts.items()}
        return logged


class StatisticsCombination(Combination, StatisticsObjective):
    """sum_i w_i L_i of StatisticsObjectives."""

    def loss(self, s: TokenStatistics) -> Tensor:
        return self._weighted(s)

    def slopes(self, s: TokenStatistics) -> dict[str, Tensor] | None:
        total: dict[str, Tensor] = {}
        for weight, slopes in zip(self.weights, self._results("slopes", s), strict=True):
            if slopes is None:
                return None
            for name, slope_N in slopes.items():
                weighted_N = weight * slope_N
                total[name] = total[name] + weighted_N if name in total else weighted_N
        return total

    def parts(self, s: TokenStatistics) -> dict[str, Tensor]:
        return self._parts(s)


class LogitsCombination(Combination, LogitsObjective):
    """sum_i w_i L_i where at least one term is a LogitsObjective."""

    cost_embedding: ClassVar[GroundCost | None] = None

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return self._weighted(self._statistics(logits_NV, targets_N, side), logits_NV)

    def parts(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._parts(self._statistics(logits_NV, targets_N, side), logits_NV)

    def _statistics(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> TokenStatistics:
        members = [term.objective for term in self.terms if isinstance(term.objective, StatisticsObjective)]
        names = frozenset[str]().union(*(member.statistic_names for member in members))
        cost_NV = None
        if COST in names and self.cost_embedding is not None:
            distinct_U, inverse_N = targets_N.unique(return_inverse=True)
            cost_NV = self.cost_embedding.first(logits_NV.shape[1]).costs(distinct_U)[inverse_N]
        return TokenStatistics(statistics_from_logits(logits_NV, targets_N, names, cost_NV), targets_N, side)


class _SharedContext:
    """A SetupContext that builds each cost embedding, teacher and language once."""

    def __init__(self, context: SetupContext) -> None:
        self._context = context
        self._cost = cache(context.cost_embedding)
        self.teacher = cache(lambda name: context.teacher(name))
        self.language = cache(lambda: context.language())

    def cost_embedding(self, source: str = PRETRAINED) -> GroundCost:
        return self._cost(source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


def combine(objectives: Sequence[Objective], weights: Sequence[Schedule]) -> StatisticsCombination | LogitsCombination:
    """Return the weighted sum of objectives. Raises ConfigError if they cannot be summed.

    The terms are sorted by their text, so every way to write a combination gives the same losses, bit for bit.
    """
    pairs = sorted(zip(objectives, weights, strict=True), key=lambda pair: repr(pair[0]))
    _check(objectives, weights)
    names = [objective.name for objective in objectives]
    terms = []
    for objective, weight in pairs:
        label = objective.name if names.count(objective.name) == 1 else repr(objective)
        terms.append(WeightedObjective(objective, weight, label, _renamed_side(objective, label, objectives)))
    fast = all(isinstance(objective, StatisticsObjective) for objective in objectives)
    return (StatisticsCombination if fast else LogitsCombination)(terms=tuple(terms))


def _check(objectives: Sequence[Objective], weights: Sequence[Schedule]) -> None:
    texts = [repr(objective) for objective in objectives]
    for objective, text in zip(objectives, texts, strict=True):
        if not isinstance(objective, (StatisticsObjective, LogitsObjective)):
            raise ConfigError(
                f"{text} runs the model itself, and its units need not be tokens, so that it cannot be summed with "
                "losses of tokens; give it alone."
            )
        if texts.count(text) > 1:
            raise ConfigError(
                f"{text} is two terms of one combination; give it once, with the sum of the weights (two classes of "
                "one name need a `name` of their own)."
            )
    if all(weight == Constant(0) for weight in weights):
        raise ConfigError(f"Every weight of {' and '.join(texts)} is 0, which trains nothing; give one above 0.")
    if len({type(objective).total_weight for objective in objectives}) > 1:
        raise ConfigError(
            f"{' and '.join(texts)} divide their sums by different weights (`total_weight`), so that the sums cannot "
            "be added; give each alone."
        )
    _check_costs(objectives)


def _check_costs(objectives: Sequence[Objective]) -> None:
    """Check before `setup` that the terms use one cost embedding: `expected_cost` is computed once for all terms."""
    costly = [objective for objective in objectives if COST in objective.needs]
    adaptive = [objective for objective in costly if is_adaptive(objective)]
    if 0 < len(adaptive) < len(costly):
        raise ConfigError(
            f"{' and '.join(map(repr, costly))}: the costs of {adaptive[0]!r} follow the head as it is trained, and "
            "others are frozen, but a combination computes `expected_cost` once; take all of one kind."
        )
    if len({str(objective.params["cost"]) for objective in costly if "cost" in objective.params}) > 1:
        raise two_costs(" and ".join(map(repr, costly)))
    if adaptive and any(isinstance(objective, LogitsObjective) for objective in objectives):
        texts = " and ".join(map(repr, objectives))
        raise ConfigError(
            f"{texts}: the costs of the one follow the head as it is trained, and the other sees logits only; combine "
            "it with objectives of token statistics, or take a frozen cost."
        )


def _renamed_side(objective: Objective, label: str, objectives: Sequence[Objective]) -> dict[str, str]:
    """Return new names for the side data of a term, where another term uses the same name.

    Only terms that compute their side data need this. The default `side_data` returns columns of the batch, which are
    the same for all terms.
    """
    if type(objective).side_data is Objective.side_data:
        return {}
    others = {name for other in objectives if other is not objective for name in other.side_names}
    return {name: f"{label}.{name}" for name in sorted(objective.side_names & others)}
