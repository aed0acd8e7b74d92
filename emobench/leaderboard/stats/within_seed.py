"""Tests within one seed: do two trained models differ on these items? It says nothing of objectives.

One test for each kind of metric, all two-sided and paired by item:

- right or wrong (accuracies): McNemar's test with the mid-p value (Fagerland, Lydersen & Laake, BMC Medical Research
  Methodology 13:91, 2013), exact up to the choice of mid-p;
- a score of each text (ROUGE, log-probabilities): the permutation test that swaps the sides of a pair at random
  (Fisher), with B = 9,999 swaps and p = (1 + how many are as extreme) / (1 + B);
- a perplexity: the bootstrap over texts of the difference of token-weighted means of nats, whose interval is that of
  percentiles, and whose p is twice the share of resamples beyond 0. Below 40 texts it rejects too often (9 % at 20), so
  that there the permutation test is used;
- a score of a whole corpus with jackknife pseudo-values (MAUVE): the permutation test of these, moved to have the score
  as their mean (`statistics.py`). It is no exact one, as for scores of texts: a swap adds and takes away an item's
  pseudo-values, where a score of swapped texts would be another one's.

Scores of a corpus without any (self-BLEU) have no items, so that one seed says nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emobench.leaderboard.stats.statistics import Examples, Series, linearise
from emobench.leaderboard.stats.uncertainty import Array, over_items

RESAMPLES = 9_999
MIN_TEXTS = 40
"""Of the bootstrap."""
MCNEMAR = "McNemar, mid-p"
PERMUTATION = "paired permutation"
BOOTSTRAP = "paired bootstrap over texts"
_CELLS = 2_000_000  # numbers held at once


@dataclass(frozen=True, kw_only=True)
class WithinSeed:
    """`effect` is a minus b (on the log scale: log(a / b)); `ci95` and `detectable` are over items."""

    seed: int | None
    test: str
    effect: float
    ci95: tuple[float, float] | None
    p: float
    items: int
    detectable: float | None


def within_seed(a: Series, b: Series, seed: int | None) -> WithinSeed | None:
    """Test one seed's pair of models; None without per-example values of the same two or more items.

    None too for perplexities of other numbers of tokens: those of different tokenizers are not on one scale.
    """
    left, right = _examples(a, seed), _examples(b, seed)
    if left is None or right is None or left.keys() != right.keys() or a.log_scale != b.log_scale:
        return None
    ids = [i for i in sorted(left) if left[i][1] or right[i][1]]  # what has no weight is not in the score
    if len(ids) < 2 or (a.log_scale and any(left[i][1] != right[i][1] for i in ids)):
        return None
    delta_I = linearise(left, ids, _centre(a, seed)) - linearise(right, ids, _centre(b, seed))
    effect, found = float(delta_I.mean()), over_items(delta_I)
    interval = found.interval(effect) if found else None
    if _is_right_or_wrong(left) and _is_right_or_wrong(right):
        only = [sum(ours[i][0] > theirs[i][0] for i in ids) for ours, theirs in ((left, right), (right, left))]
        test, p = MCNEMAR, mcnemar_mid_p(*only)
    elif a.log_scale and len(ids) >= MIN_TEXTS:
        test, (p, interval) = BOOTSTRAP, _bootstrap(left, right, ids)
    else:
        test, p = PERMUTATION, permutation_p(delta_I)
    detectable = found.detectable if found else None
    return WithinSeed(seed=seed, test=test, effect=effect, ci95=interval, p=p, items=len(ids), detectable=detectable)


def mcnemar_mid_p(only_a: int, only_b: int) -> float:
    """Return the mid-p value of the items that only one side has right (0 to 1; 1 where there are none)."""
    from scipy import special  # 0.15 s, which a comparison without examples does not need

    few, discordant = min(only_a, only_b), only_a + only_b
    fewer, at_most = (float(special.bdtr(k, discordant, 0.5)) if k >= 0 else 0.0 for k in (few - 1, few))
    return min(1.0, fewer + at_most)  # twice the probability of fewer and half of that of as many


def permutation_p(delta_I: Array) -> float:
    """Return the p value of the mean of paired differences (I,) under random signs."""
    limit = abs(delta_I.sum()) * (1 - 1e-9)  # rounding makes no resample less extreme
    packed = _signs(len(delta_I), RESAMPLES)
    extreme, rows = 0, max(1, _CELLS // len(delta_I))
    for start in range(0, RESAMPLES, rows):
        flipped_BI = np.unpackbits(packed[start : start + rows], axis=1, count=len(delta_I))
        sums_B = delta_I.sum() - 2 * (flipped_BI.astype(np.float64) @ delta_I)
        extreme += int((np.abs(sums_B) >= limit).sum())
    return (1 + extreme) / (1 + RESAMPLES)


@lru_cache(maxsize=4)
def _signs(items: int, resamples: int) -> Array:
    """Return (B, I / 8) bits, the same at every call: a p value is reproducible."""
    return np.random.default_rng(0).integers(0, 256, (resamples, -(-items // 8)), dtype=np.uint8)


def _bootstrap(left: Examples, right: Examples, ids: list[str]) -> tuple[float, tuple[float, float]]:
    from scipy import stats  # 0.4 s, which few comparisons need

    (value_a, weight_a), (value_b, weight_b) = (np.array([side[i] for i in ids]).T for side in (left, right))

    def statistic(value_a: Array, weight_a: Array, value_b: Array, weight_b: Array, axis: int = -1) -> Array:
        a = (value_a * weight_a).sum(axis) / weight_a.sum(axis)
        return a - (value_b * weight_b).sum(axis) / weight_b.sum(axis)

    found = stats.bootstrap(
        (value_a, weight_a, value_b, weight_b),
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=max(1, _CELLS // len(ids)),
        method="percentile",
        rng=np.random.default_rng(0),
    )
    drawn_B = found.bootstrap_distribution
    beyond = 1 + min(int((drawn_B <= 0).sum()), int((drawn_B >= 0).sum()))
    low, high = found.confidence_interval
    return min(1.0, 2 * beyond / (1 + RESAMPLES)), (float(low), float(high))


def _is_right_or_wrong(examples: Examples) -> bool:
    pairs = list(examples.values())
    return all(value in (0, 1) and weight == pairs[0][1] for value, weight in pairs)


def _centre(row: Series, seed: int | None) -> float:
    return row.centre(seed if seed in row.values else None)


def _examples(row: Series, seed: int | None) -> Examples | None:
    if row.examples is None:
        return None
    return row.examples.get(seed, row.examples.get(None))
