"""Is one trained model better than another on examples like these? Only the test examples are a sample.

Two evaluations of single models, paired example by example. What follows holds for these two models: nothing is known
of another seed of the same training, so that it is no verdict on an objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emobench.core.errors import MetricError
from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.classical import MCNEMAR_EXACT, MIN_ITEMS, mcnemar_exact, mcnemar_interval
from emobench.leaderboard.stats.compare import Comparison, Contrast, SeriesReader, adjusted, describing, plain_contrast
from emobench.leaderboard.stats.difference import PAIRED_T, is_right_or_wrong, noise_of
from emobench.leaderboard.stats.random_effects import over_items
from emobench.leaderboard.stats.series import Series, common_examples, effective, linearise
from emobench.tasks.families import families

NO_EXAMPLES = "no per-example results whose mean is this number"
UNLIKE_WEIGHTS = "the examples have other numbers of tokens: two tokenizers are not on one scale"


def compare_models(
    baseline: Entry,
    candidates: Sequence[Entry],
    examples_of: ExamplesOf,
    unpaired: Mapping[str, Mapping[str, str]],
) -> Comparison:
    """Compare models, each an entry of one evaluation, with a baseline on the metrics that both have.

    `unpaired` says of a candidate's id and a metric why its examples are not the baseline's: it gets no verdict. p is
    adjusted within each family of tests (Holm).
    """
    series = SeriesReader(examples_of)
    found: list[Contrast] = []
    missing = {}
    for candidate in candidates:
        shared = [metric for metric in baseline.metrics if metric in candidate.metrics]
        missing[candidate.id] = tuple(sorted(baseline.metrics.keys() ^ candidate.metrics.keys()))
        made = []
        left, right = _on(candidate, shared), _on(baseline, shared)
        for metric in shared:
            plain = plain_contrast(left, right, metric, [metric])
            why = unpaired.get(candidate.id, {}).get(metric)
            made.append(
                replace(plain, why=why) if why else _judged(plain, *(series(e, metric) for e in (candidate, baseline)))
            )
        found += adjusted(made)
    return Comparison(
        baseline=baseline,
        candidates=tuple(candidates),
        contrasts=tuple(found),
        apart={},
        missing={key: names for key, names in missing.items() if names},
        replicates="items",
    )


def _on(entry: Entry, metrics: Sequence[str]) -> Entry:
    """Return an entry whose families are those of these metrics alone: the other file may have other tasks."""
    return replace(entry, families=families({name: to_plain(entry.metrics[name]) for name in metrics}))


def _judged(plain: Contrast, ours: Series | None, theirs: Series | None) -> Contrast:
    tested = _tested(plain, ours, theirs)
    if isinstance(tested, str):
        tested = replace(plain, verdict="undetermined", why=tested)
    return describing(tested) if plain.family is None else tested


def _tested(plain: Contrast, ours: Series | None, theirs: Series | None) -> Contrast | str:
    """Return a contrast with its test, or why there is none."""
    left, right = (None if row is None else row.examples_of(None) for row in (ours, theirs))
    if ours is None or theirs is None or left is None or right is None or ours.log_scale != theirs.log_scale:
        return NO_EXAMPLES
    try:
        common = common_examples(ours.scored_by([None]), theirs.scored_by([None]))
    except MetricError as error:
        return str(error)
    ours, theirs = ours.only(common, [None]), theirs.only(common, [None])
    left, right = ours.examples_of(None) or {}, theirs.examples_of(None) or {}
    if ours.log_scale and any(left[i][1] != right[i][1] for i in left):
        return UNLIKE_WEIGHTS
    ids = [i for i in sorted(left) if left[i][1] or right[i][1]]  # what has no weight is not in the score
    binary = is_right_or_wrong(left) and is_right_or_wrong(right)
    if len(ids) < (2 if binary else MIN_ITEMS):
        return f"{len(ids)} sampling units (examples, passages); {2 if binary else MIN_ITEMS} are needed"
    delta_I = linearise(left, ids, ours.centre(None)) - linearise(right, ids, theirs.centre(None))
    if not common.complete:
        plain = replace(plain, common_examples=len(common.ids), all_examples=common.total)
    effect = float(delta_I.mean())
    units = min(effective(left), effective(right))
    if binary:
        noise = over_items(delta_I, units, skewed=False)
        only_a, only_b = (sum(x[i][0] > y[i][0] for i in ids) for x, y in ((left, right), (right, left)))
        test, p = MCNEMAR_EXACT, mcnemar_exact(only_a, only_b)
        interval = mcnemar_interval(only_a, only_b, len(ids))
    else:
        noise = noise_of(delta_I, units, max(abs(ours.centre(None)), abs(theirs.centre(None))))
        if isinstance(noise, str):
            return noise
        if noise is None:
            return replace(plain, effect=0.0, verdict="tied", why="all values are equal", items=len(ids))
        test, p, interval = PAIRED_T, noise.p_value(effect), noise.interval(effect)
    return replace(
        plain,
        effect=effect,
        ci95=interval,
        p=p,
        test=test,
        items=len(ids),
        detectable=noise.detectable if noise else None,
        detectable_ci95=noise.detectable_ci95 if noise else None,
    )
