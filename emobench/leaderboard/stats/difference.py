"""The difference of two rows over their seeds, and its test.

Legend: S seeds, I items. The seed is the unit of every comparison: a claim on an objective must hold for a seed that
was not run. `random_effects.py` has the model, `series.py` the values.

**Tests within one seed** tell whether two trained models differ on these items. They are no tests of objectives. They
are two-sided and paired by item: McNemar's test where every answer is right or wrong, else the t test over items,
corrected for skewness, which compares result files, too (`compare_models`). Of a perplexity the values are those of
token-weighted means of nats, and of a score of a whole corpus (MAUVE) its jackknife pseudo-values (`series.py`).

Of 50 lognormal(1.5) differences the t interval holds the true mean in 96 %, or there is none. A bootstrap of
percentiles holds it in 81 %, and a permutation test in 78 %: it takes both sides to be alike in more than the mean.

Scores of a corpus without pseudo-values have no items, and no test within a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.entry import ROUNDING
from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.classical import (
    MCNEMAR_EXACT,
    MCNEMAR_MID_P,
    MIN_ITEMS,
    MIN_SEEDS,
    Interval,
    mcnemar_exact,
    mcnemar_interval,
    mcnemar_mid_p,
)
from emobench.leaderboard.stats.random_effects import Array, Part, Uncertainty
from emobench.leaderboard.stats.series import (
    Seed,
    Series,
    TaskItems,
    common_examples,
    effective,
    joined_tasks,
    linearise,
)
from emobench.tasks.scores import Examples, single_examples

SAME_AMOUNT = "every example differs by the same amount, so that no noise is seen"
NO_EXAMPLES = "no per-example results whose mean is this number"
UNLIKE_WEIGHTS = "the examples have other numbers of tokens: two tokenizers are not on one scale"
PAIRED_T = "paired t test"
"""Over items, corrected for skewness; of symmetric items of equal weight it is `scipy.stats.ttest_rel`."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """`effect` is a minus b, or log(a / b) on the log scale (perplexities), with its 95 % interval and two-sided p.

    `test` names the test, `seeds` counts those of a test over seeds, and `items` the items that were paired (None: the
    seeds' scores alone). `detectable` estimates the true effect that the test detects with 80 % power, with a 95 %
    interval; both follow from the `noise`, the variance of the effect by its sources. Equal values have no interval and
    nothing detectable: no noise was seen.
    Where a run lacks an example, all of this is over the `common_examples` of `all_examples`.
    """

    effect: float
    log_scale: bool
    ci95: Interval | None = None
    p: float | None = None
    test: str | None = None
    items: int | None = None
    seeds: int | None = None
    detectable: float | None = None
    detectable_ci95: Interval | None = None
    noise: Uncertainty | None = None
    common_examples: int | None = None
    all_examples: int | None = None


def compare_rows(a: Sequence[Series], b: Sequence[Series]) -> Difference | str:
    """Compare two rows, or their means over tasks: each is given as its Series for the same tasks in the same order.

    Paired by seed from 3 common seeds on; rows with fewer common seeds and 3 or more of their own are compared as
    independent ones (Welch). Paired by item where the scores are of examples. Returns why where it is undetermined, as
    the noise cannot be estimated. A mean over several tasks is taken of scores as they are, or of log perplexities
    where all are perplexities.
    """
    try:
        return _over_seeds(a, b)
    except MetricError as why:
        return str(why)


def _over_seeds(a: Sequence[Series], b: Sequence[Series]) -> Difference:
    seeds_a, seeds_b = _seeds(a, b)
    for row in (*a, *b):
        if row.no_replicates is not None:
            raise MetricError(row.no_replicates)
    seeds, paired = min(len(seeds_a), len(seeds_b)), seeds_a == seeds_b
    if seeds_a == [None]:
        raise MetricError("neither side has the values of its single seeds")
    if seeds < MIN_SEEDS:
        raise MetricError(f"seeds in common: {seeds}; a verdict needs {MIN_SEEDS}, or {MIN_SEEDS} seeds of each side")
    log = all(row.log_scale for row in (*a, *b))
    rows_a, rows_b, tasks = [], [], []
    kept = total = 0
    for row_a, row_b in zip(a, b, strict=True):
        row_a, row_b = row_a.of_seeds(seeds_a), row_b.of_seeds(seeds_b)
        if row_a.scored and row_b.scored:
            common = common_examples(row_a.scored.values(), row_b.scored.values())
            row_a, row_b = row_a.only(common), row_b.only(common)
            kept += len(common.ids)
            total += common.total
            if row_a.log_scale == row_b.log_scale == log:
                tasks.append(_task_items(row_a, row_b))
        rows_a.append(row_a)
        rows_b.append(row_b)
    if len(tasks) < len(a):  # one lacks items, or has them on another scale
        tasks = []
        for row in (*a, *b):
            if row.of_examples:
                # Seeds share the examples: a t test over seeds rejected up to 67 % of true nulls (simulated), whether
                # the score is a mean of examples or one of a corpus.
                raise MetricError("the per-example results of both sides are not available for the same examples")
        if any(None in row.values for row in (*a, *b)):
            raise MetricError("one value without seeds and without per-example results")
    left_S, right_S = _task_mean(rows_a, log), _task_mean(rows_b, log)
    effect = float(left_S.mean() - right_S.mean())
    joined = joined_tasks(tasks)
    items, units, differences = [], [], []
    count = 0
    for task in joined:
        left_SI, right_SI = task.values
        items.append(task.values)
        units.append(task.effective)
        count += left_SI.shape[1]
        if paired:
            differences.append(left_SI - right_SI)
    members = []
    if len(joined) < len(tasks):
        members = [task.values[0].mean(0) - task.values[1].mean(0) for task in tasks]
    if items and paired:
        test = "random effects of seeds and items"
        noise = random_effects.crossed(*differences, effective=units, members=members)
    elif items:
        test = "random effects of seeds and items, unpaired seeds"
        noise = random_effects.unpaired(*items, effective=units, members=members)
    elif paired:
        test, noise = "paired t over seeds", random_effects.over_seeds(left_S - right_S)
    else:
        test, noise = "Welch's t over seeds", random_effects.unpaired_seeds(left_S, right_S)
    if noise is None and effect:
        raise MetricError(random_effects.SAME_AMOUNT)
    if noise is not None:
        why = random_effects.without_spread(left_S, right_S, items, paired=paired, log=log)
        if why:
            raise MetricError(why)
        if items and random_effects.alike(items, min(row.reach for row in (*a, *b)), paired=paired):
            raise MetricError(random_effects.ALIKE)
    return _difference(effect, noise, (kept, total), log_scale=log, test=test, items=count or None, seeds=seeds)


def _difference(effect: float, noise: Uncertainty | None, examples: tuple[int, int], **known: Any) -> Difference:
    """Return a difference with its noise, None if all values are equal; `examples` are the common ones and all."""
    if examples[0] < examples[1]:
        known |= {"common_examples": examples[0], "all_examples": examples[1]}
    if noise is None:
        return Difference(effect=0.0, p=1.0, **known)
    if noise.hidden(effect):
        raise MetricError(random_effects.SKEWED)
    return Difference(effect=effect, **_tested(effect, noise), **known)


def _tested(effect: float, noise: Uncertainty) -> dict[str, Any]:
    return {
        "ci95": noise.interval(effect),
        "p": noise.p_value(effect),
        "detectable": noise.detectable,
        "detectable_ci95": noise.detectable_ci95,
        "noise": noise,
    }


def with_fixed_noise(difference: Difference, part: Part) -> Difference:
    """Return a difference whose noise has one more source, which neither seeds nor items reduce.

    It is never surer than before: a part of many degrees of freedom can lower the critical value more than it adds to
    the standard error.
    """
    if difference.noise is None or difference.ci95 is None or difference.p is None:
        return difference
    noise = replace(difference.noise, parts=(*difference.noise.parts, part), fixed=1)
    wider = _tested(difference.effect, noise)
    low, high = wider["ci95"]
    wider["ci95"] = min(low, difference.ci95[0]), max(high, difference.ci95[1])
    wider["p"] = max(wider["p"], difference.p)
    return replace(difference, **wider)


def _seeds(a: Sequence[Series], b: Sequence[Series]) -> tuple[list[Seed], list[Seed]]:
    """Return the seeds that both sides are compared over: common ones, or all of each if that gives enough.

    Every task of a side must have a seed. A row without seeds, whose only one is None, is paired with each of its
    rival's.
    """
    left, right = _seeds_of(a), _seeds_of(b)
    if None in left:
        return right, right
    if None in right:
        return left, left
    common = [seed for seed in left if seed in right]
    enough_of_each = min(len(left), len(right)) >= MIN_SEEDS
    if len(common) < MIN_SEEDS and enough_of_each:
        return left, right
    return common, common


def _seeds_of(rows: Sequence[Series]) -> list[Seed]:
    return [seed for seed in rows[0].values if all(seed in row.values for row in rows)]


def _task_items(a: Series, b: Series) -> TaskItems:
    """Return both sides' linearised values for one task, whose examples are available for each seed."""
    examples = [*(a.examples or {}).values(), *(b.examples or {}).values()]
    first = examples[0]
    if len(first) < MIN_ITEMS:
        raise MetricError(f"{len(first)} sampling units (documents, passages); {MIN_ITEMS} are needed")
    fewest = min(map(effective, examples))
    names = tuple(sorted(first))
    return TaskItems(names, (a.linearised_SI, b.linearised_SI), fewest, frozenset(single_examples(first)), a.data)


def _task_mean(rows: Sequence[Series], log: bool) -> Array:
    """Return (S,) means over tasks."""
    values_TS = np.array([list(row.values.values()) for row in rows])
    if log:
        values_TS = np.log(values_TS)
    return values_TS.mean(axis=0)


def paired_test(a: Series, b: Series, *, exact: bool) -> Difference | str:
    """Test two models, each a Series of one seed, on their common examples, or return why they cannot be tested.

    Of right or wrong answers it is McNemar's test, `exact` or with its mid-p. There is no test of fewer than 10
    sampling units (2 where all are right or wrong), where one of the two lacks more than 5 % of the examples, and of
    perplexities with different numbers of tokens: those of two tokenizers are not on one scale. Nor is there one where
    the units do not show how they vary: all differ by one amount, or few by much.
    """
    try:
        return _over_items(a, b, exact)
    except MetricError as why:
        return str(why)


def _over_items(a: Series, b: Series, exact: bool) -> Difference:
    if not a.examples or not b.examples or a.log_scale != b.log_scale:
        raise MetricError(NO_EXAMPLES)
    common = common_examples(a.scored.values(), b.scored.values())
    a, b = a.only(common), b.only(common)
    (left,), (right,) = (a.examples or {}).values(), (b.examples or {}).values()
    (centre_a,), (centre_b,) = map(a.centre, a.values), map(b.centre, b.values)
    ids, only_a, only_b = [], 0, 0
    for i in sorted(left):
        (value_a, weight_a), (value_b, weight_b) = left[i], right[i]
        if a.log_scale and weight_a != weight_b:
            raise MetricError(UNLIKE_WEIGHTS)
        if weight_a or weight_b:  # an example without weight is not in the score
            ids.append(i)
            only_a += value_a > value_b
            only_b += value_b > value_a
    binary = _is_right_or_wrong(left) and _is_right_or_wrong(right)
    fewest = 2 if binary else MIN_ITEMS
    if len(ids) < fewest:
        raise MetricError(f"{len(ids)} sampling units (examples, passages); {fewest} are needed")
    delta_I = linearise(left, ids, centre_a) - linearise(right, ids, centre_b)
    effect, units = float(delta_I.mean()), min(effective(left), effective(right))
    noise = random_effects.over_items(delta_I, units, skewed=not binary)
    rounding = ROUNDING * max(abs(centre_a), abs(centre_b))
    if not binary and (noise is None or float(np.ptp(delta_I)) <= rounding):
        if abs(effect) > rounding:
            raise MetricError(SAME_AMOUNT)
        noise = None
    counts = len(common.ids), common.total
    made = _difference(effect, noise, counts, log_scale=a.log_scale, test=PAIRED_T, items=len(ids))
    if not binary:
        return made
    test, p_value = MCNEMAR_MID_P, mcnemar_mid_p
    if exact:
        test, p_value = MCNEMAR_EXACT, mcnemar_exact
    interval = mcnemar_interval(only_a, only_b, len(ids), mid_p=not exact)
    return replace(made, effect=effect, test=test, p=p_value(only_a, only_b), ci95=interval)


def _is_right_or_wrong(examples: Examples) -> bool:
    """Return whether every example is 0 or 1 and counts alike."""
    pairs = list(examples.values())
    return all(value in (0, 1) and weight == pairs[0][1] for value, weight in pairs)
