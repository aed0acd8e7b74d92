"""The difference of two rows over their seeds, and its test.

Legend: S seeds, I items. The seed is the unit of every comparison: a claim on an objective must hold for a seed that
was not run. `random_effects.py` has the model, `series.py` the values.

**Tests within one seed** tell whether two trained models differ on these items. They are no tests of objectives. They
are two-sided and paired by item: McNemar's test where every answer is right or wrong, else the t test over items,
corrected for skewness, by which result files are compared, too (`models.py`). Of a perplexity the values are those of
token-weighted means of nats, and of a score of a whole corpus (MAUVE) its jackknife pseudo-values (`series.py`).

Of 50 lognormal(1.5) differences the t interval holds the true mean in 96 %, or there is none. A bootstrap of
percentiles holds it in 81 %, and a permutation test in 78 %: it takes both sides to be alike in more than the mean.

Scores of a corpus without pseudo-values have no items, and no test within a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.entry import ROUNDING
from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.classical import (
    MCNEMAR_EXACT,
    MCNEMAR_MID_P,
    MIN_ITEMS,
    MIN_SEEDS,
    mcnemar_exact,
    mcnemar_interval,
    mcnemar_mid_p,
)
from emobench.leaderboard.stats.random_effects import SKEWED, Array, Uncertainty, over_items
from emobench.leaderboard.stats.series import (
    Common,
    Series,
    TaskItems,
    common_examples,
    effective,
    joined_tasks,
    linearise,
)
from emobench.tasks.scores import Examples, single_examples

EQUAL = "equal values"
"""Stands for a test where there was nothing to test."""


@dataclass(frozen=True)
class Difference:
    """`effect` is a minus b, or log(a / b) on the log scale (perplexities), with its 95 % interval and two-sided p.

    `test` names the test, `items` counts the items that were paired (None: the seeds' scores alone), and `detectable`
    estimates the true effect that it detects with 80 % power, with a 95 % interval. Rows that are equal, seed by seed
    and item by item, have the test EQUAL, no interval and nothing detectable: no noise was seen. Where a run lacks an
    example, all of this is over the `common_examples` of `all_examples`.
    """

    effect: float
    ci95: tuple[float, float] | None
    p: float
    seeds: int
    log_scale: bool
    test: str
    items: int | None
    detectable: float | None
    detectable_ci95: tuple[float, float] | None
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
        return _difference(a, b, *_seeds(a, b))
    except _Undetermined as why:
        return str(why)


class _Undetermined(Exception):
    """Why two rows cannot be told apart."""


def _difference(
    a: Sequence[Series], b: Sequence[Series], seeds_a: Sequence[int | None], seeds_b: Sequence[int | None]
) -> Difference:
    for row in (*a, *b):
        if row.no_replicates is not None:
            raise _Undetermined(row.no_replicates)
    seeds = min(len(seeds_a), len(seeds_b))
    if seeds_a == [None]:
        raise _Undetermined("the values of single seeds are not known on either side")
    if seeds < MIN_SEEDS:
        counted = {0: "no common seed", 1: "1 common seed"}.get(seeds, f"{seeds} common seeds")
        raise _Undetermined(f"{counted}; {MIN_SEEDS} are needed, or as many other ones of each side")
    a, b, counts = _on_common_examples(a, b, seeds_a, seeds_b)
    log = all(row.log_scale for row in (*a, *b))
    left_S, right_S = _task_mean(a, seeds_a, log), _task_mean(b, seeds_b, log)
    effect = float(left_S.mean() - right_S.mean())
    items, units, members = _items(a, b, seeds_a, seeds_b, log)
    if not items:
        _check_seeds_suffice(a, b)
    paired = seeds_a == seeds_b
    test, noise = _tested(left_S, right_S, items, units, members, paired=paired)
    count = sum(left.shape[1] for left, _ in items) or None
    if noise is None:
        if effect:
            raise _Undetermined(random_effects.SAME_AMOUNT)
        return Difference(0.0, None, 1.0, seeds, log, EQUAL, count, None, None, *counts)
    why = random_effects.without_spread(left_S, right_S, items, paired=paired, log=log)
    if why:
        raise _Undetermined(why)
    reach = min(row.reach for row in (*a, *b))
    if items and random_effects.alike(items, reach, paired=paired):
        raise _Undetermined(random_effects.ALIKE)
    if noise.hidden(effect):
        raise _Undetermined(random_effects.SKEWED)
    return Difference(
        effect=effect,
        ci95=noise.interval(effect),
        p=noise.p_value(effect),
        seeds=seeds,
        log_scale=log,
        test=test,
        items=count,
        detectable=noise.detectable,
        detectable_ci95=noise.detectable_ci95,
        common_examples=counts[0],
        all_examples=counts[1],
    )


def _on_common_examples(
    a: Sequence[Series], b: Sequence[Series], seeds_a: Sequence[int | None], seeds_b: Sequence[int | None]
) -> tuple[list[Series], list[Series], tuple[int | None, int | None]]:
    """Return both rows over the examples that all their runs have, how many these are, and how many there are.

    The counts are over all tasks; None where no run lacks an example, or a task has no examples.
    """
    kept_a, kept_b = [], []
    kept = total = 0
    for row_a, row_b in zip(a, b, strict=True):
        left, right = row_a.scored_by(seeds_a), row_b.scored_by(seeds_b)
        if left and right:
            try:
                common = common_examples(left, right)
            except MetricError as error:
                raise _Undetermined(str(error)) from None
            row_a, row_b = row_a.only(common, seeds_a), row_b.only(common, seeds_b)
            kept += len(common.ids)
            total += common.total
        kept_a.append(row_a)
        kept_b.append(row_b)
    return kept_a, kept_b, (None, None) if kept == total else (kept, total)


def _check_seeds_suffice(a: Sequence[Series], b: Sequence[Series]) -> None:
    """Raise where seeds alone would miss noise: that of examples, or of the one value of a row without seeds."""
    if any(row.of_examples for row in (*a, *b)):
        # Seeds share the examples: a t test over seeds rejected up to 67 % of true nulls (simulated), whether the
        # score is a mean of examples or one of a corpus.
        raise _Undetermined("the per-example results of both sides are not available for the same examples")
    if any(None in row.values for row in (*a, *b)):
        raise _Undetermined("one value without seeds and without per-example results")


def _tested(
    left_S: Array,
    right_S: Array,
    items: Sequence[tuple[Array, Array]],
    units: Sequence[float],
    members: Sequence[Array],
    *,
    paired: bool,
) -> tuple[str, Uncertainty | None]:
    """Return the test's name and what it knows of the noise."""
    given = {"effective": units, "members": members}
    if items and paired:
        differences = [left_SI - right_SI for left_SI, right_SI in items]
        return "random effects of seeds and items", random_effects.crossed(*differences, **given)
    if items:
        return "random effects of seeds and items, unpaired seeds", random_effects.unpaired(*items, **given)
    if paired:
        return "paired t over seeds", random_effects.over_seeds(left_S - right_S)
    return "Welch's t over seeds", random_effects.unpaired_seeds(left_S, right_S)


def _seeds(a: Sequence[Series], b: Sequence[Series]) -> tuple[list[int | None], list[int | None]]:
    """Return the seeds that both sides are compared over: common ones, or each side's own where too few are common.

    Every task of a side must have a seed; a row without seeds is paired with each of its rival's.
    """
    left = [seed for seed in a[0].values if all(seed in row.values for row in a)]
    right = [seed for seed in b[0].values if all(seed in row.values for row in b)]
    if None in left:
        return right, right
    if None in right:
        return left, left
    common = [seed for seed in left if seed in right]
    if len(common) >= MIN_SEEDS or min(len(left), len(right)) < MIN_SEEDS:
        return common, common
    return left, right


def _task_mean(rows: Sequence[Series], seeds: Sequence[int | None], log: bool) -> Array:
    """Return (S,) means over tasks."""
    values_TS = np.array([[row.value(seed) for seed in seeds] for row in rows])
    return np.mean(np.log(values_TS) if log else values_TS, axis=0)


def _items(
    a: Sequence[Series], b: Sequence[Series], seeds_a: Sequence[int | None], seeds_b: Sequence[int | None], log: bool
) -> tuple[list[tuple[Array, Array]], list[float], list[Array]]:
    """Return both sides' (S, I) linearised values for each task, and how many items of equal weight they are worth.

    Tasks that share items are one; then the (I,) mean differences of each task alone are returned, too. Nothing where a
    task lacks them, or has them on another scale.
    """
    tasks = []
    for row_a, row_b in zip(a, b, strict=True):
        left, right = _examples(row_a, seeds_a), _examples(row_b, seeds_b)
        if not left or not right or not row_a.log_scale == row_b.log_scale == log:
            return [], [], []
        if len(left[0]) < MIN_ITEMS:
            raise _Undetermined(f"{len(left[0])} sampling units (documents, passages); {MIN_ITEMS} are needed")
        task = TaskItems(
            names=tuple(sorted(left[0])),
            values=(row_a.linearised_values(seeds_a), row_b.linearised_values(seeds_b)),
            effective=min(effective(examples) for examples in (*left, *right)),
            examples=frozenset(single_examples(left[0])),
            data=row_a.data,
        )
        tasks.append(task)
    joined = joined_tasks(tasks)
    members = []
    if len(joined) < len(tasks):
        members = [task.values[0].mean(0) - task.values[1].mean(0) for task in tasks]
    return [task.values for task in joined], [task.effective for task in joined], members


def _examples(row: Series, seeds: Sequence[int | None]) -> list[Examples]:
    """Return the examples of each seed; nothing where they are not available."""
    examples = [row.examples_of(seed) for seed in seeds]
    return [] if None in examples else [one for one in examples if one is not None]


SAME_AMOUNT = "every example differs by the same amount, so that no noise is seen"
NO_EXAMPLES = "no per-example results whose mean is this number"
UNLIKE_WEIGHTS = "the examples have other numbers of tokens: two tokenizers are not on one scale"
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


@dataclass(frozen=True, kw_only=True)
class PairedTest:
    """A test of two models on their `common` examples; `noise` is None and there is no interval if all are equal."""

    test: str
    effect: float
    ci95: tuple[float, float] | None
    p: float
    items: int
    noise: Uncertainty | None
    common: Common


def within_seed(a: Series, b: Series, seed: int | None) -> WithinSeed | None:
    """Test one seed's pair of models, with the mid-p of McNemar's test; None where `paired_test` says why not."""
    tested = paired_test(a, b, seed, exact=False)
    if isinstance(tested, str):
        return None
    return WithinSeed(
        seed=seed,
        test=tested.test,
        effect=tested.effect,
        ci95=tested.ci95,
        p=tested.p,
        items=tested.items,
        detectable=tested.noise.detectable if tested.noise else None,
    )


def paired_test(a: Series, b: Series, seed: int | None, *, exact: bool) -> PairedTest | str:
    """Test a seed's pair of models on their common examples, or return why they cannot be tested.

    There is no test of fewer than 10 sampling units (2 where all are right or wrong), where one of the two lacks more
    than 5 % of the examples, and of perplexities with different numbers of tokens: those of two tokenizers are not on
    one scale. Nor is there one where the units do not show how they vary: all differ by one amount, or few by much.
    """
    left, right = a.examples_of(seed), b.examples_of(seed)
    if left is None or right is None or a.log_scale != b.log_scale:
        return NO_EXAMPLES
    try:
        common = common_examples(a.scored_by([seed]), b.scored_by([seed]))
    except MetricError as error:
        return str(error)
    a, b = a.only(common, [seed]), b.only(common, [seed])
    left, right = a.examples_of(seed) or {}, b.examples_of(seed) or {}
    if a.log_scale and any(left[i][1] != right[i][1] for i in left):
        return UNLIKE_WEIGHTS
    ids = [i for i in sorted(left) if left[i][1] or right[i][1]]  # an example without weight is not in the score
    binary = _is_right_or_wrong(left) and _is_right_or_wrong(right)
    fewest = 2 if binary else MIN_ITEMS
    if len(ids) < fewest:
        return f"{len(ids)} sampling units (examples, passages); {fewest} are needed"
    delta_I = linearise(left, ids, a.centre(seed)) - linearise(right, ids, b.centre(seed))
    effect, units = float(delta_I.mean()), min(effective(left), effective(right))
    if binary:
        noise = over_items(delta_I, units, skewed=False)
        only_a = sum(left[i][0] > right[i][0] for i in ids)
        only_b = sum(right[i][0] > left[i][0] for i in ids)
        test = MCNEMAR_EXACT if exact else MCNEMAR_MID_P
        p = mcnemar_exact(only_a, only_b) if exact else mcnemar_mid_p(only_a, only_b)
        interval = mcnemar_interval(only_a, only_b, len(ids), mid_p=not exact)
    else:
        noise = _noise_of(delta_I, units, max(abs(a.centre(seed)), abs(b.centre(seed))))
        if isinstance(noise, str):
            return noise
        test, p, interval = PAIRED_T, 1.0, None
        if noise is None:
            effect = 0.0
        else:
            p, interval = noise.p_value(effect), noise.interval(effect)
    return PairedTest(test=test, effect=effect, ci95=interval, p=p, items=len(ids), noise=noise, common=common)


def _noise_of(delta_I: Array, units: float, size: float) -> Uncertainty | str | None:
    """Return the noise of a mean difference; None if all items are equal; or why the items do not show it.

    `delta_I` are the (I,) differences of items that are worth `units` of equal weight, of two scores of this `size`.
    """
    effect, rounding = float(delta_I.mean()), ROUNDING * size
    noise = over_items(delta_I, units)
    if noise is None or float(np.ptp(delta_I)) <= rounding:
        return SAME_AMOUNT if abs(effect) > rounding else None
    return SKEWED if noise.hidden(effect) else noise


def _is_right_or_wrong(examples: Examples) -> bool:
    """Return whether every example is 0 or 1 and counts alike."""
    pairs = list(examples.values())
    return all(value in (0, 1) and weight == pairs[0][1] for value, weight in pairs)
