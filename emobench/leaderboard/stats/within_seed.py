"""Tests within one seed: do two trained models differ on these items? They are no tests of objectives.

They are two-sided and paired by item: McNemar's test where every answer is right or wrong, else the t test over items,
corrected for skewness, by which result files are compared, too (`models.py`). Of a perplexity the values are those of
token-weighted means of nats, and of a score of a whole corpus (MAUVE) its jackknife pseudo-values (`series.py`).

Of 50 lognormal(1.5) differences the t interval holds the true mean in 96 %, or there is none. A bootstrap of
percentiles holds it in 81 %, and a permutation test in 78 %: it takes both sides to be alike in more than the mean.

Scores of a corpus without pseudo-values have no items, and no test within a seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.schema.entry import ROUNDING
from emobench.leaderboard.stats.common_examples import common_examples
from emobench.leaderboard.stats.paired_tests import mcnemar
from emobench.leaderboard.stats.random_effects import SKEWED, Array, Uncertainty, over_items
from emobench.leaderboard.stats.series import Series, effective, linearise
from emobench.leaderboard.stats.thresholds import MIN_ITEMS
from emobench.tasks.scores import Examples

SAME_AMOUNT = "every example differs by the same amount, so that no noise is seen"
PAIRED_T = "paired t test"
"""Over items, corrected for skewness; of symmetric items of equal weight it is `scipy.stats.ttest_rel`."""


@dataclass(frozen=True, kw_only=True)
class WithinSeed:
    """`effect` is a minus b (on the log scale: log(a / b)); `ci95` holds what the test does not reject."""

    seed: int | None
    test: str
    effect: float
    ci95: tuple[float, float] | None
    p: float
    items: int
    detectable: float | None


def within_seed(a: Series, b: Series, seed: int | None) -> WithinSeed | None:
    """Test one seed's pair of models on their common examples.

    None for fewer than 10 sampling units (2 where all are right or wrong), where one of the two lacks more than 5 % of
    the examples, and for perplexities with different numbers of tokens: those of two tokenizers are not on one scale.
    None also where the units do not show how they vary: all differ by the same amount, or few by much (`hidden`).
    """
    left, right = a.examples_of(seed), b.examples_of(seed)
    if left is None or right is None or a.log_scale != b.log_scale:
        return None
    try:
        common = common_examples(a.scored_by([seed]), b.scored_by([seed]))
    except MetricError:
        return None
    a, b = a.only(common, [seed]), b.only(common, [seed])
    left, right = a.examples_of(seed) or {}, b.examples_of(seed) or {}
    ids = [i for i in sorted(left) if left[i][1] or right[i][1]]  # what has no weight is not in the score
    binary = is_right_or_wrong(left) and is_right_or_wrong(right)
    if len(ids) < (2 if binary else MIN_ITEMS) or (a.log_scale and any(left[i][1] != right[i][1] for i in ids)):
        return None
    delta_I = linearise(left, ids, a.centre(seed)) - linearise(right, ids, b.centre(seed))
    effect = float(delta_I.mean())
    units = min(effective(left), effective(right))
    if binary:
        found = over_items(delta_I, units, skewed=False)
        only_a, only_b = (sum(x[i][0] > y[i][0] for i in ids) for x, y in ((left, right), (right, left)))
        test, p = mcnemar.NAME, mcnemar.mcnemar_mid_p(only_a, only_b)
        interval = mcnemar.interval(only_a, only_b, len(ids), mid_p=True)
    else:
        found = noise_of(delta_I, units, max(abs(a.centre(seed)), abs(b.centre(seed))))
        if isinstance(found, str):
            return None
        effect = effect if found else 0.0
        test, p, interval = PAIRED_T, found.p_value(effect) if found else 1.0, found.interval(effect) if found else None
    detectable = found.detectable if found else None
    return WithinSeed(seed=seed, test=test, effect=effect, ci95=interval, p=p, items=len(ids), detectable=detectable)


def noise_of(delta_I: Array, units: float, size: float) -> Uncertainty | str | None:
    """Return the noise of a mean difference; None if all items are equal; or why the items do not show it.

    `delta_I` are the (I,) differences of items that are worth `units` of equal weight, of two scores of this `size`.
    """
    effect, rounding = float(delta_I.mean()), ROUNDING * size
    noise = over_items(delta_I, units)
    if noise is None or float(np.ptp(delta_I)) <= rounding:
        return SAME_AMOUNT if abs(effect) > rounding else None
    return SKEWED if noise.hidden(effect) else noise


def is_right_or_wrong(examples: Examples) -> bool:
    """Return whether every example is 0 or 1 and counts alike."""
    pairs = list(examples.values())
    return all(value in (0, 1) and weight == pairs[0][1] for value, weight in pairs)
