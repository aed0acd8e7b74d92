"""Is one trained model better than another on examples like these? Only the test examples are a sample.

Two evaluations of single models, paired example by example. What follows holds for these two models: nothing is known
of another seed of the same training, so that it is no verdict on an objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emobench.core.settings import to_plain
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import Comparison, Contrast, SeriesReader, adjusted, describing, plain_contrast
from emobench.leaderboard.stats.difference import NO_EXAMPLES, PairedTest, paired_test
from emobench.leaderboard.stats.series import Series
from emobench.tasks.families import families


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
    compared: list[Contrast] = []
    missing = {}
    for candidate in candidates:
        shared = [metric for metric in baseline.metrics if metric in candidate.metrics]
        one_sided = baseline.metrics.keys() ^ candidate.metrics.keys()
        if one_sided:
            missing[candidate.id] = tuple(sorted(one_sided))
        made = []
        left, right = _on(candidate, shared), _on(baseline, shared)
        reasons = unpaired.get(candidate.id, {})
        for metric in shared:
            contrast = plain_contrast(left, right, metric, [metric])
            if metric in reasons:
                contrast = replace(contrast, why=reasons[metric])
            else:
                contrast = _tested(contrast, series(candidate, metric), series(baseline, metric))
                if contrast.family is None:
                    contrast = describing(contrast)
            made.append(contrast)
        compared += adjusted(made)
    return Comparison(
        baseline=baseline,
        candidates=tuple(candidates),
        contrasts=tuple(compared),
        apart={},
        missing=missing,
        replicates="items",
    )


def _on(entry: Entry, metrics: Sequence[str]) -> Entry:
    """Return an entry whose families are those of these metrics alone: the other file may have other tasks."""
    return replace(entry, families=families({name: to_plain(entry.metrics[name]) for name in metrics}))


def _tested(plain: Contrast, ours: Series | None, theirs: Series | None) -> Contrast:
    """Return a contrast with its test, or with the reason why there is none."""
    tested: PairedTest | str = NO_EXAMPLES
    if ours is not None and theirs is not None:
        tested = paired_test(ours, theirs, None, exact=True)
    if isinstance(tested, str):
        return replace(plain, verdict="undetermined", why=tested)
    if not tested.common.complete:
        plain = replace(plain, common_examples=len(tested.common.ids), all_examples=tested.common.total)
    plain = replace(plain, effect=tested.effect, items=tested.items)
    if tested.ci95 is None:
        return replace(plain, verdict="tied", why="all values are equal")
    noise = tested.noise
    return replace(
        plain,
        ci95=tested.ci95,
        p=tested.p,
        test=tested.test,
        detectable=noise.detectable if noise else None,
        detectable_ci95=noise.detectable_ci95 if noise else None,
    )
