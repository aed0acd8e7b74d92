"""Scores of seeds from values of examples, and their tests."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from emobench.leaderboard.stats.difference import Difference, paired_test
from emobench.leaderboard.stats.series import Series
from emobench.leaderboard.stats.summary import summarise
from emobench.tasks.scores import Score


def score(
    value_I: Any,
    weight_I: Any = None,
    lacking: Collection[int] = (),
    *,
    unit: str = "nats",
    aggregate: Any = "mean",
    units: Mapping[str, str] | None = None,
    shift: float = 0.0,
) -> Score:
    """Return the score of one seed without some examples; `shift` is that of a score from its pseudo-values' mean."""
    values = np.asarray(value_I, dtype=float)
    weights = np.ones(len(values)) if weight_I is None else np.asarray(weight_I, dtype=float)
    kept = [i for i in range(len(values)) if i not in lacking]
    mean, log = float(np.average(values[kept], weights=weights[kept])) + shift, unit == "perplexity"
    return Score(
        value=math.exp(mean) if log else mean,
        n=len(kept),
        higher_is_better=not log,
        unit=unit,
        examples={str(i): (float(values[i]), float(weights[i])) for i in kept},
        units=units,
        aggregate="exp_mean" if log else aggregate,
    )


def series(scores: Sequence[Score], seeds: Sequence[int] | None = None) -> Series:
    """Return the series of some seeds, of all if none are named."""
    examples = [one.sampled for one in scores if one.examples]
    return Series.of(summarise(scores), range(len(scores)) if seeds is None else seeds, examples or None)


def scores(values_SI: np.ndarray, *, examples: bool = True, unit: str = "nats") -> list[Score]:
    """Return a plain-mean score for each seed."""
    if examples:
        return [score(value_I, unit=unit) for value_I in values_SI]
    plain = {"higher_is_better": True, "unit": unit, "aggregate": "corpus"}
    return [Score(value=float(value_I.mean()), n=len(value_I), **plain) for value_I in values_SI]


def within_seed(a: Series, b: Series, seed: int | None) -> Difference | None:
    """Return the test of one seed's two models, with the mid-p of McNemar's test; None if they cannot be tested."""
    tested = paired_test(a.of_seeds([seed]), b.of_seeds([seed]), exact=False)
    return tested if isinstance(tested, Difference) else None
