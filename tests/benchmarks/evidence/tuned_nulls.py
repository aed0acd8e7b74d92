"""How often tuned objectives that are equal at their best are called different.

    python tests/benchmarks evidence.tuned_nulls    # writes results/evidence/tuned_nulls.json

Each repetition draws two objectives whose true scores are parabolas over the logarithm of the learning rate, with the
same peak. Their trials are on validation examples, with noise of examples and of the seed. The best trial of each is
chosen by `best_trial`, and the choices are compared on test examples with three seeds, at a nominal 5 %: by the test of
`compare`, whose variance includes the noise of the choice, and by the same test without it. `spread` is how much lower
the score is one grid point from the peak, in standard errors of a trial.

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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
from evidence.null_comparisons import Null, compared, series

from emobench.leaderboard.entry import Trial, Tuning
from emobench.leaderboard.stats.best_of import choice_noise
from emobench.leaderboard.stats.classical import ALPHA
from emobench.leaderboard.stats.difference import compare_rows, with_fixed_noise
from emobench.leaderboard.stats.random_effects import over_items
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


def search(rng: np.random.Generator, world: World, objective: int) -> Tuning:
    """Return the search of an objective over the grid, on validation data."""
    item_I = rng.normal(0, ITEM_SD / math.sqrt(2), VALIDATION)  # the same examples for all trials
    trials = []
    for place in range(GRID):
        values_SI = answers(rng, world.score(objective, place), item_I, world.trial_seeds)
        half_width = None
        if world.trial_seeds == 1:
            low, high = over_items(values_SI[0], skewed=False).interval(0.0)
            half_width = (high - low) / 2
        trials.append(Trial(settings={"place": place}, value=float(values_SI.mean()), half_width=half_width))
    best = best_trial(trials, higher_is_better=True)
    assert best is not None
    return Tuning(
        asked={},
        space={"place": ""},
        sampler="grid",
        seeds=tuple(range(world.trial_seeds)),
        metric="score",
        unit="score",
        higher_is_better=True,
        validation={},
        trials=tuple(trials),
        chosen=best,
    )


def on_test_data(rng: np.random.Generator, means: Sequence[float], searches: Sequence[Tuning] = ()) -> dict[str, bool]:
    """Return what the test says of two objectives with these true scores, on fresh test examples and seeds.

    With searches also with the noise of their choices, as `compare` has it.
    """
    sides = []
    for mean in means:
        sides.append(answers(rng, mean, rng.normal(0, ITEM_SD / math.sqrt(2), EXAMPLES), SEEDS))
    made = Null(*sides)
    difference = compare_rows([series(made.a_SI, made)], [series(made.b_SI, made)])
    if isinstance(difference, str):
        return {"rejected": False, "undetermined": True}
    verdicts = {"rejected": difference.p < ALPHA, "undetermined": False}
    if searches:
        of_seeds = float(np.mean([values_SI.mean(axis=1).var(ddof=1) for values_SI in sides]))
        noise = choice_noise(searches, of_seeds, log=False)
        verdicts["rejected, choice as certain"] = verdicts["rejected"]
        verdicts["rejected"] = with_fixed_noise(difference, noise).p < ALPHA
    return verdicts


def tuned(rng: np.random.Generator, world: World) -> dict[str, bool]:
    searches = [search(rng, world, objective) for objective in (0, 1)]
    means = [world.score(objective, tuning.chosen) for objective, tuning in enumerate(searches)]
    return on_test_data(rng, means, searches)


def shared(rng: np.random.Generator, world: World) -> dict[str, bool]:
    rate = search(rng, world, 0).chosen
    return on_test_data(rng, [world.score(objective, rate) for objective in (0, 1)])


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
        counts: Counter[str] = Counter()
        for _ in range(draws):
            counts.update(draw(rng, world))
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
