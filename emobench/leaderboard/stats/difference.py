"""The difference of two rows over their seeds, and its test.

Legend: S seeds, I items. The seed is the unit of every comparison: a claim on an objective must hold for a seed that
was not run. `random_effects.py` has the model, `series.py` the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emobench.core.errors import MetricError
from emobench.leaderboard.stats import random_effects
from emobench.leaderboard.stats.common_examples import common_examples
from emobench.leaderboard.stats.random_effects import Array, Uncertainty
from emobench.leaderboard.stats.series import Series, effective
from emobench.leaderboard.stats.shared_items import TaskItems, joined_tasks
from emobench.leaderboard.stats.thresholds import MIN_ITEMS, MIN_SEEDS
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
    test, found = _tested(left_S, right_S, items, units, members, paired=seeds_a == seeds_b)
    count = sum(left.shape[1] for left, _ in items) or None
    if found is not None and (
        why := random_effects.without_spread(left_S, right_S, items, paired=seeds_a == seeds_b, log=log)
    ):
        raise _Undetermined(why)
    if found is None and effect:
        raise _Undetermined(random_effects.SAME_AMOUNT)
    if found is None:
        return Difference(0.0, None, 1.0, seeds, log, EQUAL, count, None, None, *counts)
    reach = min(row.reach for row in (*a, *b))
    if items and random_effects.alike(items, reach, paired=seeds_a == seeds_b):
        raise _Undetermined(random_effects.ALIKE)
    if found.hidden(effect):
        raise _Undetermined(random_effects.SKEWED)
    interval, p = found.interval(effect), found.p_value(effect)
    detectable = found.detectable, found.detectable_ci95
    return Difference(effect, interval, p, seeds, log, test, count, *detectable, *counts)


def _on_common_examples(
    a: Sequence[Series], b: Sequence[Series], seeds_a: Sequence[int | None], seeds_b: Sequence[int | None]
) -> tuple[list[Series], list[Series], tuple[int | None, int | None]]:
    """Return both rows over the examples that all their runs have, how many these are, and how many there are.

    The counts are over all tasks; None where no run lacks an example, or a task has no examples.
    """
    kept_a, kept_b, found = [], [], []
    for row_a, row_b in zip(a, b, strict=True):
        left, right = row_a.scored_by(seeds_a), row_b.scored_by(seeds_b)
        if left and right:
            try:
                found.append(common_examples(left, right))
            except MetricError as error:
                raise _Undetermined(str(error)) from None
            row_a, row_b = row_a.only(found[-1], seeds_a), row_b.only(found[-1], seeds_b)
        kept_a.append(row_a)
        kept_b.append(row_b)
    if all(common.complete for common in found):
        return kept_a, kept_b, (None, None)
    return kept_a, kept_b, (sum(len(common.ids) for common in found), sum(common.total for common in found))


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
    if items and paired:
        return "random effects of seeds and items", random_effects.crossed(
            *(left - right for left, right in items), effective=units, members=members
        )
    if items:
        return "random effects of seeds and items, unpaired seeds", random_effects.unpaired(
            *items, effective=units, members=members
        )
    if paired:
        return "paired t over seeds", random_effects.over_seeds(left_S - right_S)
    return "Welch's t over seeds", random_effects.unpaired_seeds(left_S, right_S)


def _seeds(a: Sequence[Series], b: Sequence[Series]) -> tuple[list[int | None], list[int | None]]:
    """Return the seeds that both sides are compared over: common ones, or each side's own where too few are common.

    Every task of a side must have a seed; a row without seeds is paired with each of its rival's.
    """
    left, right = ([s for s in rows[0].values if all(s in row.values for row in rows)] for rows in (a, b))
    if None in left or None in right:
        seeds = right if None in left else left
        return seeds, seeds
    common = [seed for seed in left if seed in right]
    enough = len(common) >= MIN_SEEDS or min(len(left), len(right)) < MIN_SEEDS
    return (common, common) if enough else (left, right)


def _task_mean(rows: Sequence[Series], seeds: Sequence[int | None], log: bool) -> Array:
    """Return (S,) means over tasks."""
    values_S_of = [np.array([row.value(seed) for seed in seeds]) for row in rows]
    return np.mean([np.log(values_S) for values_S in values_S_of] if log else values_S_of, axis=0)


def _items(
    a: Sequence[Series], b: Sequence[Series], seeds_a: Sequence[int | None], seeds_b: Sequence[int | None], log: bool
) -> tuple[list[tuple[Array, Array]], list[float], list[Array]]:
    """Return both sides' (S, I) linearised values for each task, and how many items of equal weight they are worth.

    Tasks that share items are one; then the (I,) mean differences of each task alone are returned, too. Nothing where a
    task lacks them, or has them on another scale.
    """
    found = []
    for row_a, row_b in zip(a, b, strict=True):
        left, right = _examples(row_a, seeds_a), _examples(row_b, seeds_b)
        if not left or not right or row_a.log_scale != row_b.log_scale or row_a.log_scale != log:
            return [], [], []
        if len(left[0]) < MIN_ITEMS:
            raise _Undetermined(f"{len(left[0])} sampling units (documents, passages); {MIN_ITEMS} are needed")
        values = row_a.linearised_values(seeds_a), row_b.linearised_values(seeds_b)
        weight, examples = min(effective(e) for e in (*left, *right)), frozenset(single_examples(left[0]))
        found.append(TaskItems(tuple(sorted(left[0])), values, weight, examples, row_a.data))
    joined = joined_tasks(found)
    members = [one.values[0].mean(0) - one.values[1].mean(0) for one in found] if len(joined) < len(found) else []
    return [one.values for one in joined], [one.effective for one in joined], members


def _examples(row: Series, seeds: Sequence[int | None]) -> list[Examples]:
    """Return the examples of each seed; nothing where they are not available."""
    found = [examples for seed in seeds if (examples := row.examples_of(seed)) is not None]
    return found if len(found) == len(seeds) else []
