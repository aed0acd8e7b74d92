"""No test cries wolf, and none sleeps: the share of p < 5 % in simulated null comparisons.

Legend: S seeds, I items. Two rows that are equal in truth are compared some hundred times under noise of items (what an
item makes of an objective), of seeds, and of both, besides a residual for every seed and item. Where objectives are
equal, few may be called different; but not too few, or the tests would miss what is there. The harder conditions of
`tests/benchmarks/evidence/null_comparisons.py` (examples in units, dependent blocks, unequal weights, skewness),
and the same ones with more draws, are benchmarks; some are run in short.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from emobench.leaderboard.stats.difference import Difference, compare_rows
from emobench.leaderboard.stats.series import Series

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))  # as `python tests/benchmarks NAME` does

from evidence import null_comparisons  # noqa: E402

LIMIT = 0.07
NOISES = {"items": (0.0, 0.5), "seeds": (0.3, 0.0), "both": (0.1, 0.5)}
"""Spread of seeds and of items, where a residual's is 1."""

ITEMS = 100


def delta(rng: np.random.Generator, seeds: int, noise: str, items: int = ITEMS) -> np.ndarray:
    """Return (S, I) paired differences of two rows that are equal in truth."""
    seed_sd, item_sd = NOISES[noise]
    return rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, item_sd, items) + rng.normal(0, 1, (seeds, items))


def row(values_SI: np.ndarray, *, log_scale: bool = False, first: int = 0) -> Series:
    means = {first + s: float(values.mean()) for s, values in enumerate(values_SI)}
    return Series(
        values={s: math.exp(mean) if log_scale else mean for s, mean in means.items()},
        examples={
            first + s: {str(i): (float(v), 1.0) for i, v in enumerate(values)} for s, values in enumerate(values_SI)
        },
        log_scale=log_scale,
    )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("log_scale", [False, True])
def test_comparisons_of_rows(seeds: int, noise: str, log_scale: bool) -> None:
    """Comparisons through the front door, with item values of a common difficulty on both sides."""
    rng = np.random.default_rng([21, seeds, list(NOISES).index(noise), log_scale])
    rejected = 0
    for _ in range(300):
        base_SI = rng.normal(3, 1, ITEMS) + rng.normal(0, 0.5, (seeds, ITEMS))
        a, b = row(base_SI + delta(rng, seeds, noise), log_scale=log_scale), row(base_SI, log_scale=log_scale)
        found = compare_rows([a], [b])
        rejected += isinstance(found, Difference) and found.p < 0.05
    assert_rate(rejected, 300)


def assert_rate(rejected: int, draws: int) -> None:
    assert 0.02 <= rejected / draws <= 0.075


def _error(rate: float, draws: int) -> float:
    """Return 2.5 standard errors of a simulated rate."""
    return 2.5 * math.sqrt(rate * (1 - rate) / draws)


def test_the_recorded_table_of_conditions_keeps_its_limit() -> None:
    found = json.loads((BENCHMARKS / "results" / "evidence" / "null_comparisons.json").read_text())
    conditions = found["conditions"]
    assert found["draws"] >= 2000
    assert conditions.keys() == null_comparisons.nulls().keys()
    for name, rates in conditions.items():
        assert rates["rejected"] <= LIMIT + _error(LIMIT, rates.get("draws", found["draws"])), name
        if name.startswith("normal"):
            assert rates["rejected"] >= 0.02, name
    # Without sampling units, leverage and skewness the same draws are called different far more often.
    assert conditions["units of 10, correlation 0.8"]["before"] > 0.4
    assert conditions["WikiText-2 by article, seeds 0.001"]["before"] > 0.5
    assert conditions["lognormal(1.5) lengths, 20 texts"]["before"] > 0.1
    assert conditions["result files, lognormal(1.5), 10 items"]["t_test"] > 0.25
    assert conditions["score of a corpus: diversity, noise of texts"]["t_test"] > 0.09
    assert conditions["mean of tasks, one-sided to opposite sides, 10 and 60 items"]["before"] > 0.1
    assert found["power"].keys() == null_comparisons.differences().keys()
    for name, shares in found["power"].items():
        weak = "away from" in name or " 10 items" in name or "normal" in name
        assert shares["right"] > (0.4 if weak else 0.7 if "mean of" in name else 0.75), name


@pytest.mark.parametrize(
    "name",
    [
        *("units of 5, correlation 0.3", "units of 10, correlation 0.8", "lognormal(1.5) lengths, 20 texts"),
        *("one-sided lognormal(1.5), 60 items", "WikiText-2 by article, seeds 0.001", "heavy tails, 100 items"),
        *("3 and 6 other seeds", "3 % of 60 items change one way, small residuals"),
        *("result files, lognormal(1.5), 10 items", "result files, lognormal(1.5), 60 items"),
        "mean of tasks, one-sided to opposite sides, 10 and 60 items",
    ],
)
def test_conditions_in_short(name: str) -> None:
    """100 draws, the first of those that are recorded."""
    (rates,) = null_comparisons.rates(100, [name]).values()
    assert rates["rejected"] <= LIMIT + _error(LIMIT, 100)
