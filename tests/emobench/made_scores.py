"""Scores of seeds from values of examples."""

from __future__ import annotations

import numpy as np

from emobench.leaderboard.stats.difference import Difference, paired_test
from emobench.leaderboard.stats.series import Series
from emobench.tasks.scores import Score


def scores(values_SI: np.ndarray, *, examples: bool = True, unit: str = "nats") -> list[Score]:
    """Return a plain-mean score for each seed."""
    return [
        Score(
            value=float(row.mean()),
            n=len(row),
            higher_is_better=True,
            unit=unit,
            examples={str(i): (float(v), 1.0) for i, v in enumerate(row)} if examples else None,
            aggregate="mean" if examples else "corpus",
        )
        for row in values_SI
    ]


def within_seed(a: Series, b: Series, seed: int | None) -> Difference | None:
    """Return the test of one seed's two models, with the mid-p of McNemar's test; None if they cannot be tested."""
    tested = paired_test(a, b, seed, exact=False)
    return tested if isinstance(tested, Difference) else None
