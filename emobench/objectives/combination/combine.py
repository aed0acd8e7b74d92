"""Build a combination from objectives and weights, and refuse objectives that cannot be summed."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.core.errors import ConfigError
from emobench.objectives.base import LogitsObjective, Objective, StatisticsObjective
from emobench.objectives.combination.combination import (
    COST,
    LogitsCombination,
    StatisticsCombination,
    WeightedObjective,
    is_adaptive,
    two_costs,
)
from emobench.objectives.combination.schedules import Constant, Schedule


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
    _check_costs([objective for objective in objectives if COST in objective.needs], texts, objectives)


def _check_costs(costly: Sequence[Objective], texts: Sequence[str], objectives: Sequence[Objective]) -> None:
    """Check before `setup` that the terms use one cost embedding: `expected_cost` is computed once for all terms."""
    adaptive = [objective for objective in costly if is_adaptive(objective)]
    if 0 < len(adaptive) < len(costly):
        raise ConfigError(
            f"{' and '.join(map(repr, costly))}: the costs of {adaptive[0]!r} follow the head as it is trained, and "
            "others are frozen, but a combination computes `expected_cost` once; take all of one kind."
        )
    if len({str(objective.params["cost"]) for objective in costly if "cost" in objective.params}) > 1:
        raise two_costs(" and ".join(map(repr, costly)))
    if adaptive and any(isinstance(objective, LogitsObjective) for objective in objectives):
        raise ConfigError(
            f"{' and '.join(texts)}: the costs of the one follow the head as it is trained, and the other sees logits "
            "only; combine it with objectives of token statistics, or take a frozen cost."
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
