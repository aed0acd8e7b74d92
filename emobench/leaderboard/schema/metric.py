"""One metric over the seeds of an entry, and what its numbers can be."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from emobench.core.errors import ConfigError
from emobench.tasks.scores import RANGES, SECONDARY

WIDEST = 0.7072
"""The largest standard deviation (n - 1) of numbers in [0, 1]: that of 0 and 1."""


@dataclass(frozen=True, kw_only=True)
class Component:
    """What one source adds to the noise of a metric (`components.py`), in its unit; of perplexities of their logarithm.

    `sd` is the standard deviation that one value would have if this source alone were drawn anew: of one seed, one
    sampling run, one k-means seed, on as many texts. `sd_of_mean` is that of the entry's mean, where the draws are
    averaged: seeds by their number, texts not at all, as every value is of the same ones. `draws` counts the seeds, the
    sampling runs of each, the k-means seeds of each run, or the texts.
    """

    sd: float
    sd_of_mean: float
    draws: int

    def __post_init__(self) -> None:
        for name, value in (("sd", self.sd), ("sd_of_mean", self.sd_of_mean)):
            if not 0 <= value < math.inf:
                raise ConfigError(f"`{name}` is {value}; expected a number of 0 or more.")
        if self.draws < 1:
            raise ConfigError(f"`draws` is {self.draws}; expected 1 or more.")


@dataclass(frozen=True, kw_only=True)
class MetricSummary:
    """One metric over the seeds of one entry.

    `mean` and `std` (n - 1; None below two values) are over `values`, which are in the order of the entry's seeds.
    `n` counts the examples behind one value, and `units` what was sampled with them (documents, subjects, passages);
    None where that is not known, and for a score that is not one of examples. `ci95` is a 95 % interval for the mean
    and `ci95_of` the randomness that it covers; without one, both are None and `ci95_missing` says why. `components`
    holds what "training seed", "sampling", "k-means" and "texts" add to the noise, as far as they can be told apart:
    none where nothing was repeated.
    """

    mean: float
    std: float | None
    values: tuple[float, ...]
    n: int | None
    ci95: tuple[float, ...] | None
    ci95_of: Literal["seeds and items", "seeds", "items"] | None
    higher_is_better: bool | None
    unit: str
    flags: tuple[str, ...] = ()
    ci95_missing: str | None = None
    units: int | None = None
    components: Mapping[str, Component] = field(default_factory=dict)

    @property
    def of_tasks(self) -> bool:
        """Whether it is an aggregate of other tasks of its entry, which no mean over tasks counts again."""
        return any(flag.startswith("group_of_") for flag in self.flags)

    @property
    def secondary(self) -> bool:
        """Whether it describes a result and decides nothing (`emobench.tasks.scores.SECONDARY`)."""
        return SECONDARY in self.flags

    @property
    def left(self) -> float:
        """The standard error of `mean`: what the components leave in it, or what its values' spread shows, if more.

        Components are not all of the noise: of one value a seed, k-means may be the only one that is known. Of
        perplexities it is that of the logarithm.
        """
        values = [math.log(value) for value in self.values] if self.unit == "perplexity" else self.values
        shown = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        return max(shown, math.hypot(*(part.sd_of_mean for part in self.components.values())))

    def __post_init__(self) -> None:
        refuse(self._wrong())

    def _wrong(self) -> Iterator[str]:
        values = {"mean": self.mean, **{f"values[{i}]": value for i, value in enumerate(self.values)}}
        bounds = {f"ci95[{i}]": bound for i, bound in enumerate(self.ci95 or ())}
        for place, number in {**values, "std": self.std or 0.0, **bounds}.items():
            if not math.isfinite(number):
                yield f"`{place}` is {number}; a score that could not be computed is missing."
        if self.ci95 is not None and len(self.ci95) != 2:
            yield f"`ci95` is {self.ci95}; expected [low, high]."
        if self.ci95 is not None and self.ci95[0] > self.ci95[1]:
            yield f"`ci95` is {list(self.ci95)}; expected the lower bound first."
        if (self.ci95 is None) != (self.ci95_of is None):
            yield "`ci95` and `ci95_of` come together; give both."
        if (self.std is None) != (len(self.values) < 2):
            yield "`std` is a number from two values on, else null."
        if self.std is not None and self.std < 0:
            yield f"`std` is {self.std}; expected 0 or more."
        if self.n is not None and self.n < 1:
            yield f"`n` is {self.n}; expected 1 or more."
        if self.units is not None and self.units < 1:
            yield f"`units` is {self.units}; expected 1 or more."
        if not self.unit:
            yield "`unit` is empty; give one, such as fraction, nats, perplexity or tokens."
        if self.values:
            mean = math.fsum(value / len(self.values) for value in self.values)  # their sum could overflow
            if not math.isclose(mean, self.mean, rel_tol=1e-6, abs_tol=1e-9):
                yield f"`mean` is {self.mean}, of its values {mean}."
        low, high = RANGES.get(self.unit, (-math.inf, math.inf))
        # The bounds of a fraction are kept within its range by those who compute them.
        for place, number in {**values, **(bounds if self.unit == "fraction" else {})}.items():
            if not low <= number <= high:
                percent = " (percent is only shown)" if self.unit == "fraction" else ""
                yield f"`{place}` is {number}, no {self.unit}; expected numbers in [{low:g}, {high:g}]{percent}."
        if self.unit == "fraction" and (self.std or 0) > WIDEST:
            yield f"`std` is {self.std}; numbers in [0, 1] spread by {WIDEST} at most."


def refuse(wrong: Iterable[str]) -> None:
    """Raise ConfigError for the first thing that is wrong, if anything is."""
    for text in wrong:
        raise ConfigError(text)
