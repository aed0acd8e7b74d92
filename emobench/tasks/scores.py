"""Scores: the results of an evaluation, and the measures that describe them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias

Examples: TypeAlias = Mapping[str, tuple[float, float]]
"""Id -> (value, weight), of examples or of sampling units."""

MOST_MISSING = 0.05
"""The share of examples that a score or a test may be without: more missing examples may decide the result."""
SECONDARY = "secondary"
"""A flag of metrics that describe a result and decide nothing: boards show and test them only where they are asked for,
so that a task may report many without weakening the tests of its main ones."""

RANGES: dict[str, tuple[float, float]] = {
    "fraction": (0.0, 1.0),
    "perplexity": (1 - 1e-6, math.inf),
    "bits per byte": (-1e-6, math.inf),
    "cosine": (-1 - 1e-6, 1 + 1e-6),
}
"""Unit -> the lowest and the highest value that it can have, with what float32 rounds; other units have any."""

SHOWN_RANGES = {
    "fraction": "0 to 100 %",
    "perplexity": "1 or more",
    "grade": "the judge's scale",
    "cosine": "-1 to 1",
    **dict.fromkeys(("nats", "bits per byte", "loss", "tokens"), "0 or more"),
}
"""Unit -> the values that it can have, in words."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric of one run.

    `examples` maps an example's id to (value, weight), and `units` an example's id to the unit that was sampled with it
    and others: a document, a subject, a passage. Examples of one unit are not independent, so that intervals and tests
    are of `sampled`, the means of units. An example that `units` does not name is a unit of its own; with None all are.
    `aggregate` says how `value` follows from them:
    "mean" is their weighted mean, "exp_mean" the exponential of it (a perplexity from nats per token, weighted by
    tokens), "corpus" is not a mean of examples, which are then absent (self-BLEU), and "jackknife" has an example's
    pseudo-value, n value - (n - 1) (value without the example): their spread is the value's, their mean is not (MAUVE).
    Who reads examples back knows no aggregate and needs none: a value is always taken for the centre of its examples.
    `repeats` holds the value of each sampling run, a row, by each k-means seed; empty where nothing is repeated. Runs
    of one place have the same random numbers in all training seeds, or others: `leaderboard.components` minds neither.
    """

    value: float
    n: int
    higher_is_better: bool | None
    unit: str
    flags: tuple[str, ...] = ()
    examples: Examples | None = None
    units: Mapping[str, str] | None = None
    aggregate: Literal["mean", "exp_mean", "corpus", "jackknife"] = "mean"
    repeats: tuple[tuple[float, ...], ...] = ()

    @property
    def sampled(self) -> Examples | None:
        """Sampling unit -> (mean value, total weight) of its examples."""
        return None if self.examples is None else by_unit(self.examples, self.units or {})


@dataclass(frozen=True)
class Measure:
    """A metric: its unit, direction and range, and the words that tables, the page and `emobench metrics` show.

    It stands next to the code that computes the metric; a `Kind` lists those of its entries in `measures`.
    """

    higher_is_better: bool | None
    """None if neither direction is better."""
    unit: str
    """Such as "fraction", "nats" or "perplexity"; `RANGES` has those with a range."""
    secondary: bool = False
    fewest: int = 1
    """The examples that a verdict needs; a score of fewer is flagged `small_n`."""
    _: KW_ONLY
    title: str = ""
    """Short enough for the heading of a column: "Test perplexity"."""
    definition: str = ""
    """One or two sentences."""
    source: str = ""
    """The paper: "Lin, 2004"."""

    @property
    def range(self) -> str:
        """The values that the metric can have, in words; "" for an unknown unit."""
        return SHOWN_RANGES.get(self.unit, "")

    def score(self, value: float, n: int, *, flags: tuple[str, ...] | None = None, **more: Any) -> Score:
        """Return a value of this metric; `more` are fields of Score."""
        if flags is None:
            flags = (SECONDARY,) if self.secondary else ()
        return Score(value=value, n=n, higher_is_better=self.higher_is_better, unit=self.unit, flags=flags, **more)


class Units(dict[str, tuple[float, float]]):
    """Sampling unit -> (weighted mean, total weight) of its `examples`; `units` names those of more than one."""

    def __init__(self, examples: Examples, units: Mapping[str, str]) -> None:
        grouped: dict[str, list[tuple[float, float]]] = {}
        for example, pair in examples.items():
            grouped.setdefault(units.get(example, example), []).append(pair)
        super().__init__()
        for unit, pairs in grouped.items():
            self[unit] = pairs[0] if len(pairs) == 1 else _joined(pairs)
        self.examples = examples
        self.units = units


def by_unit(examples: Examples, units: Mapping[str, str]) -> Examples:
    """Return (weighted mean, total weight) of each sampling unit; `units` names those that are not the example itself.

    The weighted mean over units is that over examples.
    """
    return Units(examples, units)


def single_examples(sampled: Examples) -> Examples:
    """Return the single examples of sampling units; units that `by_unit` did not make are examples themselves."""
    return sampled.examples if isinstance(sampled, Units) else sampled


def units_of(sampled: Examples) -> Mapping[str, str]:
    """Return the sampling unit of each example that is not a unit of its own."""
    return sampled.units if isinstance(sampled, Units) else {}


def only(sampled: Examples, kept: Collection[str], units: Mapping[str, str] | None = None) -> Examples:
    """Return the sampling units of some examples: the given `units`, or else those that they have."""
    examples = {example: pair for example, pair in single_examples(sampled).items() if example in kept}
    if units is None:
        units = units_of(sampled)
    return Units(examples, units)


def _joined(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    total = math.fsum(weight for _, weight in pairs)
    if not total:
        return pairs[0][0], total
    return math.fsum(value * weight for value, weight in pairs) / total, total
