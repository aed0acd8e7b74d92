"""How many seeds or items show a difference: the power of comparisons that were not run.

**Scaling.** The variance of a mean difference over S seeds and I items is v_seed / S + v_item / I + v_residual / (S I)
(`random_effects.py`). With k times the seeds and m times the items, the seeds' variance is divided by k, the items' by
m, and the residual's by k m. Degrees of freedom grow alike. Items can be too few for any number of seeds: v_item / I
stays.

**Power.** The noncentrality at which the test has 80 % power lies between those of the seeds and of the items, as its
critical value does. A plan from estimated variances has less power than one from true ones: of a variance that three
seeds estimate, half of all samples show less than 0.7 times the truth. So the power is 80 % on average over the true
variances that an estimate allows. Write c for the needed noncentrality less 0.84, and s for the planned standard error,
whose variance has f degrees of freedom (Satterthwaite). If the true variance is s^2 f / chi2_f, a difference d is found
with the probability P(Z + d / s sqrt(chi2_f / f) > c): d / s is the 80 % quantile of the noncentral t with f degrees of
freedom and noncentrality c. `tests/benchmarks/evidence/planned_power.py` simulates pilots and their plans.

**Interval.** The numbers that would do at either end of the variance's own 95 % interval. From three seeds it is wide.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import dataclass

from emobench.leaderboard.stats.classical import ALPHA, MIN_SEEDS, POWER
from emobench.leaderboard.stats.compare import Contrast
from emobench.leaderboard.stats.distributions import NORMAL, noncentral_t_quantile
from emobench.leaderboard.stats.random_effects import Uncertainty, upper_limit

MOST = 1_000_000
"""Seeds or items up to which a number is searched."""


@dataclass(frozen=True, kw_only=True)
class Count:
    """A number of seeds or of items, with its 95 % interval; None: no number shows the difference."""

    count: int | None
    ci95: tuple[int | None, int | None]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What shows a true difference as large as the observed one, with 80 % power at the level of its family.

    `seeds` counts the seeds of each side and `items` the sampling units (examples, documents): all of them, with the
    other number as it is. None if a comparison does not sample them.
    """

    seeds: Count | None
    items: Count | None


def what_decides(contrast: Contrast) -> Decision | None:
    """Return the seeds or the items that would decide a tie; None without a tie, or for equal values."""
    if contrast.verdict != "tied" or contrast.noise is None or contrast.effect == 0:
        return None
    noise, effect = contrast.noise, abs(contrast.effect)
    seeds, items, level = contrast.seeds, contrast.items, contrast.level
    of_seeds = of_items = None
    if seeds is not None and noise.of != "items":
        of_seeds = seeds_needed(noise, effect, seeds, level=level, least=seeds + 1)
    if items is not None and noise.of != "seeds":

        def detectable(count: int, limit: float | None) -> float:
            return detectable_with(noise, items=count / items, level=level, limit=limit)

        of_items = _count(detectable, effect, items + 1)
    return Decision(seeds=of_seeds, items=of_items)


def seeds_needed(
    noise: Uncertainty, effect: float, seeds: int, *, items: float = 1.0, level: float = ALPHA, least: int = MIN_SEEDS
) -> Count:
    """Return how many seeds show a true difference of this size with 80 % power, `least` or more.

    The noise is of a comparison of so many `seeds`; `items` is how many times its items there will be.
    """

    def detectable(count: int, limit: float | None) -> float:
        return detectable_with(noise, seeds=count / seeds, items=items, level=level, limit=limit)

    return _count(detectable, effect, least)


def _count(detectable: Callable[[int, float | None], float], effect: float, least: int) -> Count:
    def smallest(limit: float | None) -> int | None:
        return fewest(least, lambda count: detectable(count, limit) <= effect)

    return Count(count=smallest(None), ci95=(smallest(ALPHA / 2), smallest(1 - ALPHA / 2)))


def fewest(least: int, enough: Callable[[int], bool]) -> int | None:
    """Return the smallest number from `least` on that is enough; None if `MOST` is not. More must never be worse."""
    count = least + bisect.bisect_left(range(least, MOST + 1), True, key=enough)
    return count if count <= MOST else None


def detectable_with(
    noise: Uncertainty, *, seeds: float = 1.0, items: float = 1.0, level: float = ALPHA, limit: float | None = None
) -> float:
    """Return the true difference that a comparison of another size shows with 80 % power.

    `seeds` and `items` are how many times as many there are as in the comparison with this noise. With a `limit`, it is
    of the variance at that confidence; without, the power is 80 % on average over what the variance may be.
    """
    estimated, planned = [], []
    fixed = len(noise.parts) - noise.fixed
    for place, (variance, df) in enumerate(noise.parts):
        factor = items
        if place >= fixed:
            factor = 1.0
        elif place == 0 and noise.of != "items":
            factor = seeds
            residual = min(noise.residual, variance)
            variance += residual / items - residual
        estimated.append((variance / factor, df))
        planned.append((variance / factor, max((df + 1) * factor - 1, 1.0)))
    study = Uncertainty(tuple(planned), noise.of)
    noncentrality = study.noncentrality(level)
    if limit is not None:
        return noncentrality * Uncertainty(upper_limit(tuple(estimated), limit), noise.of).standard_error
    freedom = study.standard_error**4 / sum(variance**2 / df for variance, df in estimated)
    critical = noncentrality - NORMAL.inv_cdf(POWER)
    return study.standard_error * noncentral_t_quantile(freedom, critical, POWER)
