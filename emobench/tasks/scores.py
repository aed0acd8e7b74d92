"""What an evaluation returns for one metric of one trained model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SECONDARY = "secondary"
"""A flag of metrics that describe a result and decide nothing: boards show and test them only where they are asked for,
so that a task may report many without weakening what is said of its main ones."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """One metric of one run.

    `examples` maps an example's id to (value, weight); `aggregate` says how `value` follows from them:
    "mean" is their weighted mean, "exp_mean" the exponential of it (a perplexity from nats per token, weighted by
    tokens), "corpus" is no mean of examples, so that there are none (self-BLEU), and "jackknife" has an example's
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
    examples: Mapping[str, tuple[float, float]] | None = None
    aggregate: Literal["mean", "exp_mean", "corpus", "jackknife"] = "mean"
    repeats: tuple[tuple[float, ...], ...] = ()
