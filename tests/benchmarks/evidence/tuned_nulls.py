"""How often tuned objectives that are equal at their best are called different.

    python tests/benchmarks evidence.tuned_nulls    # writes results/evidence/tuned_nulls.json

Each repetition draws two objectives whose true scores are parabolas over the logarithm of the learning rate, with the
same peak. Their trials are on validation examples, with noise of examples and of the seed. The best trial of each is
chosen by `best_trial`, and the choices are compared by `compare_rows` on test examples with three seeds, at a nominal
5 %. `spread` is how much lower the score is one grid point from the peak, in standard errors of a trial.

Conditions: tuned with peaks at the same grid point, or two points apart; the planted case, in which both objectives
take the best rate of the first one (a shared recipe: here a rejection is right about that rate, and wrong about the
objectives); and a leak, in which the choice is made with the examples and seeds of the test, and one objective has 8
trials and the other 1.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from evidence.null_comparisons import Null, compared, series

from emobench.leaderboard.entry import Trial
from emobench.runs.tuned import best_trial

RESULTS = Path(__file__).parents[1] / "results" / "evidence"
GRID, SEEDS, EXAMPLES, VALIDATION = 8, 3, 200, 200
SEED_SD, ITEM_SD, NOISE = 0.1, 0.5, 1.0
"""Standard deviations: of a seed, of an example's own difference between objectives, and of one answer."""
TRIAL_ERROR = math.sqrt(SEED_SD**2 + NOISE**2 / VALIDATION)
"""Of a trial with one seed."""
Array = np.ndarray


@dataclass(frozen=True)
class World:
    """Two objectives: the places of their peaks on the grid, and the fall of the score beside a peak."""

    peaks: tuple[int, int]
    fall: float
    trial_seeds: int = 1

    def score(self, objective: int, place: int) -> float:
        """Return the true score of an objective at a grid point, 0 at its peak."""
        return -self.fall * (place - self.peaks[objective]) ** 2


def answers(rng: np.random.Generator, mean: float, item_I: Array, seeds: int) -> Array:
    """Return the examples' values of one objective, (S, I)."""
    seed_S1 = rng.normal(0, SEED_SD, (seeds, 1))
    return mean + item_I + seed_S1 + rng.normal(0, NOISE, (seeds, len(item_I)))


def chosen(rng: np.random.Generator, world: World, objective: int, places: Sequence[int]) -> int:
    """Return the grid point that a search chooses on validation data."""
    item_I = rng.normal(0, ITEM_SD / math.sqrt(2), VALIDATION)  # the same examples for all trials
    trials = []
    for place in places:
        values_SI = answers(rng, world.score(objective, place), item_I, world.trial_seeds)
        trials.append(Trial(settings={"place": place}, value=float(values_SI.mean())))
    best = best_trial(trials, higher_is_better=True)
    assert best is not None
    return places[best]


def tested(rng: np.random.Generator, means: Sequence[float]) -> dict[str, bool]:
    """Return what `compare_rows` says of two objectives with these true scores, on fresh test examples and seeds."""
    sides = []
    for mean in means:
        sides.append(answers(rng, mean, rng.normal(0, ITEM_SD / math.sqrt(2), EXAMPLES), SEEDS))
    made = Null(*sides)
    return compared([series(made.a_SI, made)], [series(made.b_SI, made)])


def tuned(rng: np.random.Generator, world: World) -> dict[str, bool]:
    grid = range(GRID)
    means = [world.score(objective, chosen(rng, world, objective, grid)) for objective in (0, 1)]
    return tested(rng, means)


def shared(rng: np.random.Generator, world: World) -> dict[str, bool]:
    rate = chosen(rng, world, 0, range(GRID))
    return tested(rng, [world.score(objective, rate) for objective in (0, 1)])


def leaking(rng: np.random.Generator, world: World) -> dict[str, bool]:
    """Return what the test says if the best of 8 equal trials, by the test itself, meets a single one."""
    sides = []
    for trials in (GRID, 1):
        item_I = rng.normal(0, ITEM_SD / math.sqrt(2), EXAMPLES)
        runs = [answers(rng, 0.0, item_I, SEEDS) for _ in range(trials)]
        sides.append(max(runs, key=np.mean))
    made = Null(*sides)
    return compared([series(made.a_SI, made)], [series(made.b_SI, made)])


def rates(draws: int) -> dict[str, dict[str, float]]:
    """Return the share of comparisons with a verdict of a difference, by condition."""
    found = {}
    conditions = []
    for spread in (0.5, 1.0, 2.0, 4.0):
        fall = spread * TRIAL_ERROR
        for seeds in (1, 3):
            about = f"spread {spread}, trials of {seeds} seeds"
            conditions.append((f"tuned, one peak, {about}", tuned, World((3, 3), fall, seeds)))
            conditions.append((f"tuned, peaks apart, {about}", tuned, World((3, 5), fall, seeds)))
        conditions.append((f"shared rate, peaks apart, spread {spread}", shared, World((3, 5), fall)))
    conditions.append(("leak: 8 trials against 1, chosen by the test", leaking, World((3, 3), 0.0)))
    for place, (name, draw, world) in enumerate(conditions):
        rng = np.random.default_rng([92, place])
        counts = {"rejected": 0, "undetermined": 0}
        for _ in range(draws):
            for test, yes in draw(rng, world).items():
                counts[test] += yes
        found[name] = {test: count / draws for test, count in counts.items()}
    return found


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="How often tuned objectives that are equal are called different.")
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--out", type=Path, default=RESULTS / "tuned_nulls.json")
    given = parser.parse_args(argv)
    found = {
        "date": date.today().isoformat(),
        "command": " ".join(["python tests/benchmarks evidence.tuned_nulls", *argv]),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "draws": given.draws,
        "nominal": 0.05,
        "conditions": rates(given.draws),
    }
    given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
