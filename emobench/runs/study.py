"""A study before it runs: the numbers of seeds that show a difference, with all examples or fewer, and their costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from emobench.core.errors import ConfigError
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.stats.classical import MIN_SEEDS
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.leaderboard.stats.power import Count, seeds_needed
from emobench.report.numbers import scale
from emobench.runs.dry_run import Outline, Read, seconds_of_a_run
from emobench.runs.planning.request import Request

PARTS = (1, 2, 4, 8)
"""The examples of a plan are divided by these."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A number of test examples, with the seeds of each objective that suffice.

    `seconds` are those of all `trainings` with their evaluations. None stands for unknown numbers; `missing` says why
    so few examples give no verdict.
    """

    examples: int | None
    seeds: Count | None = None
    trainings: int | None = None
    seconds: float | None = None
    missing: tuple[str, ...] = ()


def pilot_of(comparisons: Sequence[Comparison]) -> tuple[Contrast, Entry]:
    """Return the first contrast that shows the noise of seeds, the primary endpoint's if it does, and its baseline.

    Raises ConfigError if there is none.
    """
    for comparison in comparisons:
        for contrast in comparison.contrasts:
            if contrast.noise is not None and contrast.family is not None and contrast.seeds:
                return contrast, comparison.baseline
    raise ConfigError(
        f"These entries do not show how seeds vary; a plan needs two with {MIN_SEEDS} seeds. Run a pilot with two "
        "objectives, `emobench run --seed 0 --seed 1 --seed 2 --limit 100`, or name other entries with --like."
    )


def choices(
    request: Request, outline_of: Callable[..., Outline], pilot: Contrast, entry: Entry, detect: float
) -> Iterator[Choice]:
    """Yield what shows a true difference of `detect`, in the shown unit, with 80 % power.

    The noise is that of a `pilot`, a contrast over seeds of which `entry` is one side.
    Raises ConfigError if the plan lacks the metric.
    """
    assert pilot.noise is not None
    name, read, most = pilot.metric.partition("/")[2], Read(), 0
    effect = detect / scale(pilot.unit)
    if pilot.log_scale:
        effect = math.log1p(detect / 100)
    request = replace(request, seeds=tuple(range(MIN_SEEDS)))
    for part in PARTS:
        if most:
            request = replace(request, limit=most // part)
        outline = outline_of(request, exact=False, read=read)
        (prospects,) = outline.verdicts
        by_metric = {one.metric: one for one in prospects.metrics}
        examples, before, missing = 0, 0, []
        for task in pilot.tasks:
            metric = f"{task}/{name}"
            if metric not in by_metric:
                raise ConfigError(f"This plan has no {metric}; its metrics are {', '.join(by_metric)}.")
            one = by_metric[metric]
            examples += one.examples or 0
            before += entry.metrics[metric].n or 0
            most = max(most, one.examples or 0)
            if one.verdict == "impossible":
                missing += one.missing
        if missing:
            yield Choice(examples=examples, missing=tuple(dict.fromkeys(missing)))
            return
        factor = 1.0
        if examples and before and pilot.items:
            factor = examples / before
        seeds = seeds_needed(pilot.noise, effect, pilot.seeds or MIN_SEEDS, items=factor)
        trainings, seconds = None, seconds_of_a_run(outline.lines)
        if seeds.count is not None:
            trainings = seeds.count * prospects.trained
            seconds = seconds and seconds * trainings
        yield Choice(examples=examples or None, seeds=seeds, trainings=trainings, seconds=trainings and seconds)
        if not most:
            return
