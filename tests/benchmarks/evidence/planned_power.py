"""Whether a comparison that was planned from a pilot finds the difference that it was planned for, in 80 % of cases.

    python tests/benchmarks evidence.planned_power    # writes results/evidence/planned_power.json: minutes of one core
    python tests/benchmarks evidence.planned_power --draws 100 --out /dev/stdout

Legend: S seeds, I items. A draw is a pilot with its noise, the number of seeds (or of items) that
`emobench.leaderboard.stats.power` takes from it, and a new comparison of that size, which is tested at 5 %: all by the
random-effects model that `emobench compare` uses. `power` is the share of planned comparisons that find the difference;
`none` is the share of pilots by which no number up to the limit would do, and `planned` are the quartiles of the
others' numbers.

`items alone` are conditions in which the seeds are few and fixed: the pilot hardly shows what part their noise has, and
those by which more items would do are the ones that show too little of it. They are reported, and not among the claims.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from evidence.null_comparisons import Null
from scipy.stats import norm

import emobench
from emobench.leaderboard.stats.power import detectable_with, fewest, seeds_needed
from emobench.leaderboard.stats.random_effects import Uncertainty, crossed, unpaired

OUT = Path(__file__).parents[1] / "results" / "evidence" / "planned_power.json"
MOST_SEEDS, MOST_ITEMS = 300, 20_000
Sample = Callable[[np.random.Generator, int, int], Null]
"""Draws the values of both sides for S seeds and I items."""


def normal(effect: float, seed_sd: float, item_sd: float, noise: float) -> Sample:
    """Differences whose seeds, items and residuals are normal."""

    def draw(rng: np.random.Generator, seeds: int, items: int) -> Null:
        seed_S1, item_I = rng.normal(0, seed_sd, (seeds, 1)), rng.normal(0, item_sd, items)
        values_SI = effect + seed_S1 + item_I + rng.normal(0, noise, (seeds, items))
        return Null(values_SI, np.zeros_like(values_SI))

    return draw


def heavy(effect: float) -> Sample:
    """Items with heavy tails: Student's t with 3 degrees of freedom."""

    def draw(rng: np.random.Generator, seeds: int, items: int) -> Null:
        values_SI = (
            effect + rng.normal(0, 0.3, (seeds, 1)) + rng.standard_t(3, items) + rng.normal(0, 1, (seeds, items))
        )
        return Null(values_SI, np.zeros_like(values_SI))

    return draw


def other_seeds(effect: float) -> Sample:
    """Sides with other seeds, and items that both find hard."""

    def draw(rng: np.random.Generator, seeds: int, items: int) -> Null:
        common_I, sides = rng.normal(0, 1, items), []
        for _ in range(2):
            own_SI = rng.normal(0, 0.2, (seeds, 1)) + rng.normal(0, 0.3, items) + rng.normal(0, 0.5, (seeds, items))
            sides.append(common_I + own_SI)
        return Null(sides[0] + effect, sides[1], paired=False)

    return draw


def answers(effect: float) -> Sample:
    """Right or wrong: a latent score of which one side has more, cut at 0."""
    seed_sd, sd = 0.15, math.sqrt(1.5**2 + 0.4**2 + 0.15**2 + 0.5**2)
    shift = sd * float(norm.ppf(norm.cdf(0.8 / sd) + effect)) - 0.8

    def draw(rng: np.random.Generator, seeds: int, items: int) -> Null:
        difficulty_I, sides = rng.normal(0.8, 1.5, items), []
        for more in (shift, 0.0):
            own_SI = rng.normal(0, 0.4, items) + rng.normal(0, seed_sd, (seeds, 1)) + rng.normal(0, 0.5, (seeds, items))
            sides.append((difficulty_I + more + own_SI > 0).astype(float))
        return Null(*sides)

    return draw


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A pilot of `seeds` and `items`. Planned are the seeds, with `planned_items`; or the items, for fixed seeds."""

    sample: Sample
    effect: float
    seeds: int
    items: int
    planned_items: int | None = None
    planned_seeds: int | None = None


def conditions() -> dict[str, Condition]:
    def of(sample: Callable[..., Sample], effect: float, *given: float, **size: int) -> Condition:
        return Condition(sample=sample(effect, *given), effect=effect, **size)

    both, most, alone = (0.3, 0.3, 1), (0.3, 0.1, 1), (0.02, 1, 1)
    return {
        "seeds and items, pilot of 3 seeds": of(normal, 0.4, *both, seeds=3, items=100),
        "seeds and items, pilot of 5 seeds": of(normal, 0.4, *both, seeds=5, items=100),
        "seeds and items, pilot of 10 seeds": of(normal, 0.4, *both, seeds=10, items=100),
        "seeds most, pilot of 3 seeds, 400 items": of(normal, 0.25, *most, seeds=3, items=400),
        "seeds most, pilot of 5 seeds, 400 items": of(normal, 0.25, *most, seeds=5, items=400),
        "residuals most, pilot of 5 seeds, 60 items": of(normal, 0.35, 0.1, 0.3, 3, seeds=5, items=60),
        "pilot of 5 seeds, 50 items, planned 200": of(normal, 0.35, 0.3, 0.8, 1, seeds=5, items=50, planned_items=200),
        "pilot of 5 seeds, 200 items, planned 60": of(normal, 0.45, 0.3, 0.5, 1, seeds=5, items=200, planned_items=60),
        "items with heavy tails, pilot of 5 seeds, 200 items": of(heavy, 0.45, seeds=5, items=200),
        "other seeds of each side, pilot of 5 seeds, 100 items": of(other_seeds, 0.25, seeds=5, items=100),
        "right or wrong, pilot of 3 seeds, 300 items": of(answers, 0.06, seeds=3, items=300),
        "right or wrong, pilot of 5 seeds, 300 items": of(answers, 0.06, seeds=5, items=300),
        "right or wrong, pilot of 200 items, planned 800": of(answers, 0.06, seeds=5, items=200, planned_items=800),
        "items alone, 20 seeds, pilot of 50 items": of(normal, 0.3, *alone, seeds=20, items=50, planned_seeds=20),
        "items alone, 3 seeds, pilot of 50 items": of(normal, 0.3, *alone, seeds=3, items=50, planned_seeds=3),
    }


def noise_of(made: Null) -> Uncertainty:
    """Return the noise of a difference, as a comparison of paired or of other seeds has it."""
    noise = crossed(made.a_SI - made.b_SI) if made.paired else unpaired((made.a_SI, made.b_SI))
    assert noise is not None
    return noise


def size(condition: Condition, noise: Uncertainty) -> tuple[int, int, int] | None:
    """Return the seeds, the items, and which of the two was planned; None without one."""
    effect, items = condition.effect, condition.planned_items or condition.items
    if condition.planned_seeds is None:
        count = seeds_needed(noise, effect, condition.seeds, items=items / condition.items).count
        return None if count is None or count > MOST_SEEDS else (count, items, count)
    factor = condition.planned_seeds / condition.seeds

    def enough(count: int) -> bool:
        return detectable_with(noise, seeds=factor, items=count / condition.items) <= effect

    count = fewest(10, enough)
    return None if count is None or count > MOST_ITEMS else (condition.planned_seeds, count, count)


def result(condition: Condition, draws: int, seed: int) -> dict[str, Any]:
    """Return what came of so many pilots."""
    rng, planned, found = np.random.default_rng([44, seed]), [], 0
    for _ in range(draws):
        sizes = size(condition, noise_of(condition.sample(rng, condition.seeds, condition.items)))
        if sizes is None:
            continue
        seeds, items, count = sizes
        planned.append(count)
        study = condition.sample(rng, seeds, items)
        noise, effect = noise_of(study), float(study.a_SI.mean() - study.b_SI.mean())
        found += noise.interval(effect)[0] > 0 and not noise.hidden(effect)
    return {
        "effect": condition.effect,
        "pilot": {"seeds": condition.seeds, "items": condition.items},
        "power": round(found / len(planned), 3),
        "planned": np.percentile(planned, [25, 50, 75]).round().astype(int).tolist(),
        "none": round(1 - len(planned) / draws, 3),
    }


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Whether planned comparisons find what they were planned for.")
    parser.add_argument("--draws", type=int, default=600)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(argv)
    results = {}
    for seed, (name, condition) in enumerate(conditions().items()):
        results[name] = result(condition, given.draws, seed)
        print(f"{name:50} {results[name]}", file=sys.stderr, flush=True)
    document = {
        "date": date.today().isoformat(),
        "command": " ".join(["python tests/benchmarks evidence.planned_power", *argv]),
        "versions": {
            "emobench": emobench.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "draws": given.draws,
        "nominal": {"level": 0.05, "power": 0.8},
        "conditions": results,
    }
    given.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
