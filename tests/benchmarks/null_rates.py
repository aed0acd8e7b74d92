"""How often two rows that are equal in truth are called different: by the verdicts' test, and by a t test over seeds.

    python tests/benchmarks/null_rates.py [--draws 6000] [--out FILE]

Legend: S seeds, I items. Paired differences of S seeds on the same I items, with noise of items (what an item makes of
an objective), of seeds, and of both, besides a residual for every seed and item of standard deviation 1. `verdict` is
the random-effects model of seeds and items (`leaderboard.uncertainty.crossed`); `t_test` takes the seeds' means for
independent, although they share their items. Minutes on one core.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from measuring import RESULTS, origin, write
from scipy import stats

from emobench.leaderboard.uncertainty import crossed

NOISES = {"items": (0.0, 0.5), "seeds": (0.3, 0.0), "both": (0.1, 0.5)}
"""Standard deviations of seeds and of items."""
SEEDS, ITEMS = (3, 5), (20, 100, 400)
ALPHA = 0.05


def rates(seeds: int, noise: str, items: int, draws: int) -> dict[str, Any]:
    """Return the shares of null comparisons with p < ALPHA."""
    rng = np.random.default_rng([22, seeds, list(NOISES).index(noise), items])
    seed_sd, item_sd = NOISES[noise]
    verdict, means_ES = 0, np.empty((draws, seeds))
    for draw in range(draws):
        of_seeds, of_items = rng.normal(0, seed_sd, (seeds, 1)), rng.normal(0, item_sd, items)
        values_SI = of_seeds + of_items + rng.normal(0, 1, (seeds, items))
        found = crossed(values_SI)
        verdict += found is not None and abs(values_SI.mean()) > found.critical(ALPHA) * found.standard_error
        means_ES[draw] = values_SI.mean(axis=1)
    t_test = stats.ttest_1samp(means_ES, 0, axis=1).pvalue < ALPHA
    shape = {"noise": noise, "seeds": seeds, "items": items}
    return {**shape, "verdict": verdict / draws, "t_test": float(t_test.mean())}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=RESULTS / "null_rates.json")
    options = parser.parse_args(argv)
    measured = [rates(s, noise, i, options.draws) for noise in NOISES for s in SEEDS for i in ITEMS]
    for row in measured:
        print("{noise:6} {seeds} seeds, {items:3} items: verdict {verdict:.3f}, t test {t_test:.3f}".format(**row))
    write({**origin(__file__, argv, "cpu"), "draws": options.draws, "alpha": ALPHA, "measured": measured}, options.out)


if __name__ == "__main__":
    main(sys.argv[1:])
