"""One call of the engine: its inputs, the checks of the contract, and its result.

Legend: N tokens, M target tokens sorted by target, C tokens of a chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from emobench.core.errors import PluginError, UnknownNameError
from emobench.models.device import with_float64
from emobench.models.head import LogitMap
from emobench.objectives.base import LogitsObjective, Objective, StatisticsObjective
from emobench.objectives.cost import CostEmbedding, GroundCost
from emobench.objectives.engine.products import accumulator_dtype, concatenated
from emobench.objectives.engine.targets import Chunk, Targets
from emobench.objectives.engine.torch_rows import TorchRows
from emobench.objectives.statistics import STATISTICS, TokenStatistics

WEIGHT = "example_weight"
"""The name in `LossResult.parts` of the weights of the tokens' examples, where they are given."""
_BAND = 1.01  # gradients within 1 % of MLE's count as equal


@dataclass
class LossResult:
    """The result of one call of the engine."""

    total: Tensor
    """`loss_sum` divided by the `denominator` of the call, if it has one: a scalar with gradients."""
    loss_sum: Tensor
    """Sum of the losses of the target tokens, times their weights if they have some: a scalar, detached, float64."""
    losses_N: Tensor
    """Loss of each token, detached and without its weight; 0 where the label is -100."""
    log_prob_N: Tensor
    """log q_t of each token in nats, detached; 0 where the label is -100."""
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Sums over the target tokens of the values that the objective logs. Every objective has `mle`. If gradients were
    computed, there are also `grew` and `shrank` (the number of tokens whose gradient by their logits has an L2 norm
    more than 1 % larger, or smaller, than under MLE), and `alternatives` (the effective number of other tokens:
    (sum q)^2 / sum q^2 over all tokens except the target)."""
    count: int = 0
    """Number of target tokens."""

    @property
    def weight(self) -> Tensor | int:
        """Sum of the weights of the target tokens: their number, if they have no weights."""
        return self.parts.get(WEIGHT, self.count)


@dataclass
class EngineCall:
    """One call of the engine."""

    objective: StatisticsObjective | LogitsObjective
    targets: Targets
    logit_map: LogitMap
    side_M: Mapping[str, Tensor]
    """The side data of the target tokens; see `sorted_side`."""
    cost: GroundCost | None
    rows: TorchRows
    dtype: torch.dtype
    vocabulary: int
    weights_M: Tensor | None
    denominator: Tensor | float | None
    with_grad: bool
    loss_sum: Tensor = field(init=False)
    losses: list[Tensor] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    parts: dict[str, Tensor] = field(default_factory=dict)
    statistics: list[Mapping[str, Tensor]] = field(default_factory=list)
    """The statistics of each chunk, for a StatisticsObjective."""
    strengths: list[Tensor] = field(default_factory=list)
    """For each chunk, the sum of squares of d loss / d logits of each token."""

    @property
    def needs(self) -> frozenset[str]:
        """The statistics that the passes compute: the objective's, and those that training logs."""
        names = self.objective.statistic_names if isinstance(self.objective, StatisticsObjective) else frozenset()
        return names | {"alternatives"} if self.with_grad else names

    def follow(self, weight_VD: Tensor) -> None:
        """Use the current head for the costs, in the dtype of the products, if the objective has adaptive costs."""
        if self.objective.adaptive_cost and "expected_cost" in self.objective.needs:
            self.cost = CostEmbedding(weight_VD, copy=False)

    def side(self, chunk: Chunk) -> dict[str, Tensor]:
        """Return the side data of a chunk's tokens."""
        return {name: value[chunk.start : chunk.stop] for name, value in self.side_M.items()}

    def note(self, loss_C: Tensor, s: TokenStatistics, logits_CV: Tensor | None = None) -> None:
        """Add the losses and parts of a chunk. Raises PluginError unless each is one number per token.

        Only a LogitsObjective needs `logits_CV`.
        """
        self.check("loss", loss_C, len(s))
        # A copy, because the loss may be a view of the logits, which are overwritten.
        self.losses.append(loss_C.detach().clone())
        self.log_probs.append(s.log_prob.detach())
        with torch.no_grad():
            if isinstance(self.objective, StatisticsObjective):
                parts = self.objective.parts(s.detach())
            else:
                assert logits_CV is not None
                parts = self.objective.parts(logits_CV.detach(), s.targets, s.side)
        for name, value_C in {"mle": -s.log_prob, **parts}.items():
            self.check(f"parts['{name}']", value_C, len(s))
            self._add(name, value_C)

    def note_together(self) -> None:
        """Add the losses, parts and strengths of all chunks at once: fifty small kernels per call, not per chunk."""
        if not isinstance(self.objective, StatisticsObjective):
            return
        values = concatenated(self.statistics)
        names = self.objective.statistic_names
        s = TokenStatistics({name: values[name] for name in names}, self.targets.ids_M, self.side_M)
        with torch.no_grad():
            loss_M = torch.cat(self.losses) if self.losses else self.objective.loss(s)
        self.losses = []
        self.note(loss_M, s)
        if self.strengths:
            squares_M = torch.cat(self.strengths)
            # Slopes have the token's weight. Of a token with weight 0 nothing can be compared: 0 / 0 is in no group.
            self.note_strength(values, squares_M if self.weights_M is None else squares_M / self.weights_M**2)

    def note_strength(self, values: Mapping[str, Tensor], squares_C: Tensor) -> None:
        """Compare the squared norm of each token's gradient by its logits with the one under MLE."""
        alternatives_C = values["alternatives"]
        # (1 - q_t)^2 + sum of q_v^2 over the other tokens, in a form that keeps its digits where q_t is almost 1.
        mle_C = torch.expm1(values["log_prob"]) ** 2 * (1 + torch.where(alternatives_C > 0, 1 / alternatives_C, 0.0))
        self._add("grew", squares_C > _BAND**2 * mle_C)
        self._add("shrank", squares_C * _BAND**2 < mle_C)
        self._add("alternatives", alternatives_C)

    def check_slopes(self, slopes: Mapping[str, Tensor], s: TokenStatistics) -> None:
        """Raise PluginError unless closed-form slopes are one number per token and statistic."""
        for name, value_C in slopes.items():
            s[name]  # raises if the name is unknown or not in `needs`
            self.check(f"slopes['{name}']", value_C, len(s))

    def _add(self, name: str, value_C: Tensor) -> None:
        # The sum is float64: thousands of float32 terms would change the sixth digit.
        self.parts[name] = self.parts.get(name, 0) + with_float64(value_C.detach()).sum(dtype=torch.float64)

    def weighted(self, values_C: Tensor, chunk: Chunk | None = None) -> Tensor:
        """Return the values of a chunk's tokens (None: of all tokens) times the tokens' weights."""
        if self.weights_M is None:
            return values_C
        weight_C = self.weights_M if chunk is None else self.weights_M[chunk.start : chunk.stop]
        return values_C * weight_C.to(values_C.dtype)

    def divided(self, value: Tensor) -> Tensor:
        """Return a value divided by the denominator, if there is one."""
        return value if self.denominator is None else value / _on(value.device, self.denominator)

    def inverse_denominator(self) -> Tensor | None:
        """Return 1 / denominator on the device of the targets. None without a denominator."""
        if self.denominator is None:
            return None
        wide = accumulator_dtype(self.dtype)
        # torch.tensor would copy from the host, and wait for it.
        ids_M = self.targets.ids_M
        one = with_float64(ids_M[:0]).new_ones((), dtype=torch.float64)
        return (one / _on(one.device, self.denominator)).to(wide).to(ids_M.device)

    def result(self, total: Tensor) -> LossResult:
        """Return the result in the order of the inputs."""
        if self.weights_M is not None:
            self._add(WEIGHT, self.weights_M)
        losses_N = total.new_zeros(self.targets.tokens)
        log_prob_N = torch.zeros_like(losses_N)
        losses_N[self.targets.order_M] = torch.cat(self.losses).to(total.dtype)
        log_prob_N[self.targets.order_M] = torch.cat(self.log_probs).to(total.dtype)
        return LossResult(total, self.loss_sum, losses_N, log_prob_N, self.parts, len(self.targets))

    def check(self, what: str, value: object, tokens: int) -> None:
        """Raise PluginError unless a value is one number per token."""
        if isinstance(value, Tensor) and value.shape == (tokens,):
            return
        given = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise PluginError(
            f"{self.objective.name}: {what} is {given}; expected one number per token, shape ({tokens},), and no mean: "
            "the trainer divides."
        )


def _on(device: torch.device, value: Tensor | float) -> Tensor | float:
    return value.to(device) if isinstance(value, Tensor) else value


def frozen_cost(objective: Objective, weight_VD: Tensor, vocabulary: int) -> GroundCost | None:
    """Return the frozen ground cost for a call. Raises PluginError if it is missing or does not match the head."""
    if "expected_cost" not in objective.needs or objective.adaptive_cost:
        return None
    cost = getattr(objective, "cost_embedding", None)
    if cost is None:
        raise PluginError(f"{objective.name} needs `expected_cost` but has no cost embedding; call setup() first.")
    if len(cost) not in (vocabulary, len(weight_VD)):
        raise PluginError(f"{objective.name}: the cost embedding has {len(cost)} rows; the head has {len(weight_VD)}.")
    return cost.first(vocabulary)


def sorted_side(
    objective: StatisticsObjective | LogitsObjective, side: Mapping[str, Tensor], targets: Targets
) -> dict[str, Tensor]:
    """Return the side data of the target tokens. Raises PluginError if some that the objective needs are missing."""
    for name in sorted(objective.side_names - set(side)):
        known = {*STATISTICS, *side}
        raise UnknownNameError("statistic or side data", name, known, where=f"{objective.name}.needs: ")
    side_M = {}
    for name, value in side.items():
        side_M[name] = per_token(f"Side data '{name}' has", value, targets)
    return side_M


def per_token(what: str, value: Tensor, targets: Targets) -> Tensor:
    """Return the rows of the target tokens. Raises PluginError, which begins with `what`, if tokens have no row."""
    if value.shape[0] != targets.tokens:
        raise PluginError(f"{what} {value.shape[0]} rows; expected one for each of the {targets.tokens} tokens.")
    return value[targets.order_M]
