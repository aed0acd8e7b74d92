"""A study before it runs: the numbers of seeds that show a difference, with all examples or fewer, and their costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from emobench.core.errors import ConfigError
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.labels import listed
from emobench.leaderboard.stats.classical import MIN_ITEMS, MIN_SEEDS
from emobench.leaderboard.stats.compare import Comparison, Contrast
from emobench.leaderboard.stats.power import Count, seeds_needed
from emobench.report.numbers import scale
from emobench.runs.dry_run import Outline, Read, seconds_of_a_run
from emobench.runs.planning.prospects import Prospect
from emobench.runs.planning.request import Request

PILOT = (
    f"`emobench plan` takes the noise of scores from two comparable entries with {MIN_SEEDS} seeds each. Run a pilot "
    "with two objectives, `emobench run --suite SUITE --objective mle --objective emo --seed 0 --seed 1 --seed 2 "
    "--limit 100`, or name two entries with --like."
)
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


@dataclass(frozen=True, kw_only=True)
class Study:
    """The choices of a plan. The noise is that of the `pilot`, a contrast of two entries, of which `entry` is one."""

    pilot: Contrast
    entry: Entry
    choices: tuple[Choice, ...]


def plan_study(
    request: Request, outline_of: Callable[..., Outline], comparisons: Sequence[Comparison], detect: float
) -> Study:
    """Return what shows a true difference of `detect`, in the shown unit, with 80 % power.

    Of the comparisons, those of the plan's model come first, and the newest of these.
    Raises ConfigError if no comparison shows the noise of one of the plan's metrics.
    """
    request, read = replace(request, seeds=tuple(range(MIN_SEEDS))), Read()
    outline = outline_of(request, exact=False, read=read)

    def nearness(comparison: Comparison) -> tuple[bool, str]:
        entries = (comparison.baseline, *comparison.candidates)
        return entries[0].model.name == outline.model, max(entry.provenance.created for entry in entries)

    pilot, entry = _pilot(sorted(comparisons, key=nearness, reverse=True), _sizes(outline))
    found, most = [], 0
    for part in PARTS:
        if most:
            outline = outline_of(replace(request, limit=most // part), exact=False, read=read)
        sizes = []
        for task in pilot.tasks:
            sizes.append(_sizes(outline)[f"{task}/{pilot.metric.partition('/')[2]}"])
        choice = _choice(outline, sizes, pilot, entry, detect)
        if found and choice.examples == found[-1].examples:
            break  # a limit shortens no test text
        found.append(choice)
        most = most or max(one.examples or 0 for one in sizes)
        if found[-1].missing or not most:
            break
    return Study(pilot=pilot, entry=entry, choices=tuple(found))


def _sizes(outline: Outline) -> dict[str, Prospect]:
    return {one.metric: one for one in outline.verdicts[0].metrics}


def _pilot(comparisons: Sequence[Comparison], known: Collection[str]) -> tuple[Contrast, Entry]:
    """Return the first contrast, the primary endpoint's if it can be, that shows the noise of `known` metrics."""
    for comparison in comparisons:
        for contrast in comparison.contrasts:
            name = contrast.metric.partition("/")[2]
            in_plan = {f"{task}/{name}" for task in contrast.tasks}.issubset(known)
            if in_plan and contrast.noise is not None and contrast.family is not None and contrast.seeds:
                return contrast, comparison.baseline
    raise ConfigError(f"No two entries show how a metric of this plan varies ({listed(list(known))}). {PILOT}")


def _choice(outline: Outline, sizes: Sequence[Prospect], pilot: Contrast, entry: Entry, detect: float) -> Choice:
    examples, before, missing = 0, 0, []
    for one in sizes:
        examples += one.examples or 0
        before += entry.metrics[one.metric].n or 0
        if one.verdict == "impossible":
            missing += one.missing
    effect, factor = detect / scale(pilot.unit), 1.0
    if pilot.log_scale:
        effect = math.log1p(detect / 100)
    if examples and before and pilot.items:
        factor = examples / before
        if pilot.items * factor < MIN_ITEMS:
            missing.append(f"about {round(pilot.items * factor)} sampling units, {MIN_ITEMS} needed")
    if missing:
        return Choice(examples=examples or None, missing=tuple(dict.fromkeys(missing)))
    assert pilot.noise is not None
    seeds = seeds_needed(pilot.noise, effect, pilot.seeds or MIN_SEEDS, items=factor)
    trainings = seconds = None
    if seeds.count is not None:
        trainings, one_run = seeds.count * outline.verdicts[0].trained, seconds_of_a_run(outline.lines)
        seconds = one_run and one_run * trainings
    return Choice(examples=examples or None, seeds=seeds, trainings=trainings, seconds=seconds)
