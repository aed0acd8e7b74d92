"""Tests within one seed: do two trained models differ on these items? They are no tests of objectives.

There is one for each kind of metric (`paired_tests`), all two-sided and paired by item:

- right or wrong (accuracies): McNemar's test;
- a score of each text (ROUGE, log-probabilities): the permutation test;
- a perplexity: the bootstrap over texts of token-weighted means of nats, and the permutation test of fewer than 40;
- a score of a whole corpus with jackknife pseudo-values (MAUVE): the permutation test of these, shifted to have the
  score as their mean (`series.py`). It is not exact there: a swap adds and takes away an item's pseudo-values, where
  the score of swapped texts would be another one.

Scores of a corpus without pseudo-values (self-BLEU) have no items, and no test within a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emobench.errors import MetricError
from emobench.leaderboard.stats.common_examples import common_examples
from emobench.leaderboard.stats.paired_tests import bootstrap, mcnemar, permutation
from emobench.leaderboard.stats.random_effects import Array, over_items
from emobench.leaderboard.stats.series import Series, effective, linearise
from emobench.tasks.scores import Examples


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
    """Test one seed's pair of models on their common examples; None without two or more sampling units of these.

    None also where one of the two lacks more than 5 % of the examples, and for perplexities with different numbers of
    tokens: those of two tokenizers are not on one scale.
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
    if len(ids) < 2 or (a.log_scale and any(left[i][1] != right[i][1] for i in ids)):
        return None
    delta_I = linearise(left, ids, a.centre(seed)) - linearise(right, ids, b.centre(seed))
    effect = float(delta_I.mean())
    found = over_items(delta_I, min(effective(left), effective(right)), skewed=False)
    if is_right_or_wrong(left) and is_right_or_wrong(right):
        only_a, only_b = (sum(x[i][0] > y[i][0] for i in ids) for x, y in ((left, right), (right, left)))
        test, p = mcnemar.NAME, mcnemar.mcnemar_mid_p(only_a, only_b)
        interval = mcnemar.interval(only_a, only_b, len(ids), mid_p=True)
    elif a.log_scale and len(ids) >= bootstrap.MIN_TEXTS:
        pairs = (np.array([side[i] for i in ids]) for side in (left, right))
        test, (p, interval) = bootstrap.NAME, bootstrap.bootstrap(*pairs)
    else:
        part_I, share_I = _parts(left, right, ids, effect)
        test, p = permutation.NAME, permutation.permutation_p(part_I)
        interval = permutation.permutation_interval(part_I, share_I) if found else None
    detectable = found.detectable if found else None
    return WithinSeed(seed=seed, test=test, effect=effect, ci95=interval, p=p, items=len(ids), detectable=detectable)


def _parts(left: Examples, right: Examples, ids: Sequence[str], effect: float) -> tuple[Array, Array]:
    """Return what each item adds to a difference (I,), and to a shift of it.

    Linearised values have the score as their centre, also those of items that hardly weigh: a swap of these would move
    the difference as much as a swap of any other.
    """
    values_2I, shares_2I = np.moveaxis(np.array([[side[i] for i in ids] for side in (left, right)]), 2, 0)
    shares_2I /= shares_2I.sum(1, keepdims=True)
    deviations_2I = shares_2I * (values_2I - (shares_2I * values_2I).sum(1, keepdims=True))
    share_I = shares_2I.mean(0)
    return deviations_2I[0] - deviations_2I[1] + share_I * effect, share_I


def is_right_or_wrong(examples: Examples) -> bool:
    """Return whether every example is 0 or 1 and counts alike."""
    pairs = list(examples.values())
    return all(value in (0, 1) and weight == pairs[0][1] for value, weight in pairs)
