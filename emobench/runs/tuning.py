"""Equal tuning: the space of the tuned settings, and the trials that a sampler takes from it.

    recipe.learning_rate=1e-6..1e-4     a range; on a log scale if its ends differ by a factor of 10 or more
    recipe.epochs=1..4                  whole numbers
    recipe.batch=[16, 32]               a list of values

Every objective gets the same number of trials. Settings that objectives share get the same values for each of them.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emobench.core.errors import ConfigError
from emobench.core.settings import parse_overrides

LOG_FACTOR = 10
"""A range whose ends differ by this factor or more is searched on a log scale."""
DIGITS = 3
"""Significant digits of a value taken from a range; without a log scale, of a tenth of the range."""


@dataclass(frozen=True)
class Dimension:
    """One tuned setting: a range of numbers, or a list of values."""

    name: str
    values: tuple[Any, ...] = ()
    """The values of a list; empty for a range."""
    low: float = 0.0
    high: float = 0.0
    whole: bool = False

    @property
    def log(self) -> bool:
        """Whether the range is searched on a log scale."""
        return self.low > 0 and self.high >= LOG_FACTOR * self.low

    def at(self, share: float) -> Any:
        """Return the value at a share of the range or list, from 0 to 1."""
        if self.values:
            return self.values[min(int(share * len(self.values)), len(self.values) - 1)]
        value = self.low + (self.high - self.low) * share
        if self.log:
            value = self.low ** (1 - share) * self.high**share
        return self.rounded(value)

    def rounded(self, value: float) -> float:
        """Return a value of the range as it is written in a setting."""
        if self.whole:
            return round(value)
        width = value if self.log else (self.high - self.low) / 10
        rounded = round(value, DIGITS - 1 - math.floor(math.log10(width))) + 0.0  # not -0.0
        return min(max(rounded, self.low), self.high)

    def grid(self, count: int) -> list[Any]:
        """Return `count` values, 2 or more, at equal distances, both ends included; of a list all values."""
        if self.values:
            return list(self.values)
        return [self.at(point / (count - 1)) for point in range(count)]

    def is_edge(self, value: Any, tried: Collection[Any]) -> bool:
        """Whether a number is the smallest or the largest of those that were tried, of three or more."""
        numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in tried)
        return numbers and len(set(tried)) > 2 and value in (min(tried), max(tried))

    def __str__(self) -> str:
        if self.values:
            return f"[{', '.join(map(str, self.values))}]"
        return f"{self.low:g}..{self.high:g}"


def parse_space(given: Mapping[str, str]) -> tuple[Dimension, ...]:
    """Read the ranges and lists of settings, as `--tune` takes them. Raises ConfigError for fewer than two values."""
    space = []
    for name, text in given.items():
        value = parse_overrides([f"value={text}"])["value"]
        space.append(_dimension(name, value))
    return tuple(space)


def _dimension(name: str, value: Any) -> Dimension:
    if isinstance(value, list):
        value = list(map(_number, value))
        if len(value) < 2 or len(set(map(repr, value))) < len(value):
            raise ConfigError(f"--tune {name}={value}: expected at least two different values.")
        return Dimension(name, values=tuple(value))
    low, dots, high = str(value).partition("..")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = math.nan, math.nan
    if not dots or not 0 < (ends[1] - ends[0]) / 10 < math.inf:
        raise ConfigError(
            f"--tune {name}={value}: expected a range of numbers, such as {name}=1e-6..1e-4, or a list, such as "
            f"{name}=[1, 2]."
        )
    whole = low.strip().lstrip("-").isdecimal() and high.strip().lstrip("-").isdecimal()
    if whole and ends[1] - ends[0] == 1:
        raise ConfigError(
            f"--tune {name}={value}: the range has only two whole numbers; expected a range with a decimal point, "
            f"{name}={ends[0]}..{ends[1]}, or the list {name}=[{low}, {high}]."
        )
    return Dimension(name, low=ends[0], high=ends[1], whole=whole)


def _number(value: Any) -> Any:
    """Return what YAML reads as text although it is a number, such as 1e-5, as a number."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def grid_trials(space: Sequence[Dimension], trials: int) -> list[dict[str, Any]]:
    """Return every combination of a grid of exactly `trials` points, the finest in the settings that come first.

    Raises ConfigError if no grid has as many points.
    """
    counts = next(_factors(trials, space), None)
    if counts is None:
        names = ", ".join(dimension.name for dimension in space)
        raise ConfigError(
            f"--trials {trials}: no grid over {names} has {trials} points; give another number, or --sampler random."
        )
    axes = []
    for dimension, count in zip(space, counts, strict=True):
        axes.append([(dimension.name, value) for value in dimension.grid(count)])
    return list(map(dict, itertools.product(*axes)))


def _factors(number: int, space: Sequence[Dimension]) -> Iterator[tuple[int, ...]]:
    """Yield the ways to write a number as a product of the sizes, 2 or more, of grids, the most even first."""
    if not space:
        if number == 1:
            yield ()
        return
    even = number ** (1 / len(space))
    factors = [factor for factor in range(2, number + 1) if number % factor == 0]
    for factor in sorted(factors, key=lambda factor: (factor < even - 1e-9, abs(factor - even))):
        different = set(map(repr, space[0].grid(factor)))
        if len(different) != factor:
            continue
        for others in _factors(number // factor, space[1:]):
            yield (factor, *others)


def random_trials(space: Sequence[Dimension], trials: int, seed: int) -> list[dict[str, Any]]:
    """Return random points of a space. A setting has the same values whatever other settings the space has."""
    drawn: list[dict[str, Any]] = []
    for _ in range(trials):
        drawn.append({})
    for dimension in space:
        digest = hashlib.sha256(f"{seed} {dimension.name}".encode()).digest()
        shares = np.random.default_rng(int.from_bytes(digest[:8], "big")).random(trials)
        for trial, share in zip(drawn, shares, strict=True):
            trial[dimension.name] = dimension.at(float(share))
    return drawn


def next_tpe_trial(
    space: Sequence[Dimension],
    finished: Sequence[tuple[Mapping[str, Any], float | None]],
    seed: int,
    *,
    maximise: bool,
) -> dict[str, Any]:
    """Return the point that optuna's TPE sampler takes after finished trials and their results; None is a failed one.

    The same finished trials give the same point, so an interrupted search goes on as it would have.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed + len(finished))
    study = optuna.create_study(direction="maximize" if maximise else "minimize", sampler=sampler)
    distributions = {dimension.name: _distribution(dimension) for dimension in space}
    for settings, value in finished:
        result: dict[str, Any] = {"value": value}
        if value is None:
            result = {"state": optuna.trial.TrialState.FAIL}
        study.add_trial(optuna.trial.create_trial(params=dict(settings), distributions=distributions, **result))
    asked = study.ask(distributions)
    point = {}
    for dimension in space:
        value = asked.params[dimension.name]
        point[dimension.name] = value if dimension.values else dimension.rounded(value)
    return point


def _distribution(dimension: Dimension) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if dimension.values:
        return CategoricalDistribution(dimension.values)
    if dimension.whole:
        return IntDistribution(int(dimension.low), int(dimension.high), log=dimension.log)
    return FloatDistribution(dimension.low, dimension.high, log=dimension.log)
