"""One entry against another, metric by metric: the difference, what is known of its noise, and a verdict or a reason.

Verdicts on objectives rest on seeds (`difference.compare_rows`); where that is undetermined, the tests within each
common seed can compare the trained models (`within_seed.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesOf, RunExamples
from emobench.leaderboard.stats.difference import EQUAL, compare_rows
from emobench.leaderboard.stats.holm import holm
from emobench.leaderboard.stats.series import Series, mean
from emobench.leaderboard.stats.thresholds import ALPHA, SMALL_N_FLAG
from emobench.leaderboard.stats.within_seed import WithinSeed, within_seed
from emobench.tasks.families import DUPLICATES, PRIMARY

Verdict: TypeAlias = Literal["better", "worse", "tied", "undetermined"]

SeriesOf: TypeAlias = Callable[[Entry, str], Series | None]
"""An entry and a metric -> its Series, or None without one."""

SMALL_N = "small n: too few examples for a verdict"

NO_VERDICT = "descriptive"
"""Stands for the verdict of a metric that gives none."""

HELD = 64
"""Entries whose per-example results a `SeriesReader` holds at once."""


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """A candidate minus the baseline on one metric; `metric` is "<task>/<metric>", or "mean/<metric>" over `tasks`.

    `effect`, `ci95` and `detectable` are in the metric's unit, or log(candidate / baseline) where `log_scale`
    (perplexities, by their geometric means). `p_holm` is p adjusted for the `tests` of the contrast's `family`
    (`tasks.families`), of which the primary endpoint is one of its own. It gives the verdict: better or worse, at 5 %;
    else tied, which does not prove equality: `ci95` holds what is possible. `detectable` estimates the true effect
    that this many seeds and items detect with 80 % power in a single test (`Uncertainty.detectable`).
    Where a run lacks an example, effect, interval and p are over the `common_examples` of `all_examples`; the means are
    those of what each run scored.
    Equal values are tied without a test. An undetermined contrast says `why`; entries that are not comparable have no
    verdict at all. Neither has a metric without a family: it describes, with an interval and without a p.

    A metric of `small_n` examples decides nothing, and costs its family nothing. It is tested, as both sides have the
    same texts and so about the same bias, and stays undetermined, as it is not known how much of the bias is left; its
    own p is adjusted for its whole family. `secondary` metrics are shown where they are asked for.
    """

    candidate: str
    metric: str
    tasks: tuple[str, ...]
    unit: str
    higher_is_better: bool | None
    baseline_mean: float
    candidate_mean: float
    effect: float
    log_scale: bool
    verdict: Verdict | None
    why: str | None = None
    ci95: tuple[float, float] | None = None
    p: float | None = None
    p_holm: float | None = None
    test: str | None = None
    detectable: float | None = None
    detectable_ci95: tuple[float, float] | None = None
    seeds: int | None = None
    items: int | None = None
    common_examples: int | None = None
    all_examples: int | None = None
    within: tuple[WithinSeed, ...] = ()
    family: str | None = None
    tests: int = 0
    secondary: bool = False
    small_n: bool = False

    @property
    def beyond_noise(self) -> bool:
        return self.verdict in ("better", "worse")

    @property
    def notes(self) -> list[str]:
        """Sentences: why there is no verdict, which examples were compared, and that the interval is not adjusted."""
        found = [f"{self.why}."] if self.why else []
        if self.common_examples is not None:
            examples = f"{self.common_examples:,} of {self.all_examples:,} examples"
            found.append(f"The difference is over the {examples} that all compared runs have.")
        if self.ci95 and not self.ci95[0] <= 0 <= self.ci95[1] and (self.p_holm or 0) > ALPHA:
            found.append("p is adjusted for the tests of its family; the interval, which excludes 0, is not.")
        return found

    @property
    def word(self) -> str | None:
        """The verdict in a word, NO_VERDICT where the metric gives none; None for entries that are not comparable."""
        return self.verdict or (NO_VERDICT if self.why else None)


class SeriesReader:
    """Makes the Series of entries, reading each entry's per-example results once while they are held."""

    def __init__(self, examples_of: ExamplesOf | None) -> None:
        self._examples_of = examples_of
        self._held: dict[str, tuple[Sequence[RunExamples] | None, dict[str, Series | None]]] = {}

    def __call__(self, entry: Entry, metric: str) -> Series | None:
        if entry.id not in self._held:
            while len(self._held) >= HELD:
                del self._held[next(iter(self._held))]
            self._held[entry.id] = (self._examples_of(entry) if self._examples_of else None), {}
        runs, made = self._held[entry.id]
        if metric not in made:
            made[metric] = Series.of_entry(entry, metric, runs)
        return made[metric]


def contrasts(
    candidate: Entry,
    baseline: Entry,
    rows: Mapping[str, Sequence[str]],
    series: SeriesOf,
    *,
    judged: bool = True,
    within: bool = False,
) -> list[Contrast]:
    """Return a contrast for each of `rows`: its name -> the metrics (of both entries) that it is of, or the mean over.

    Those that are not `judged` have no verdict; `within` adds the tests within each seed where there is none, or where
    it is undetermined.
    """
    made = []
    for name, columns in rows.items():
        plain = plain_contrast(candidate, baseline, name, columns)
        ours, theirs = ([row for m in columns if (row := series(e, m))] for e in (candidate, baseline))
        found = _judged(plain, ours, theirs) if judged else plain
        if plain.family is None:
            made.append(describing(found) if judged else found)
            continue
        untold = found.p is None and found.verdict != "tied"
        made.append(replace(found, within=_within(ours, theirs)) if within and untold else found)
    return adjusted(made)


def primary_of(candidate: Entry, baseline: Entry) -> str | None:
    """Return the primary endpoint of two entries; None if they have different ones, or none.

    An entry without one (imported, or of a suite file before schema 5) has that of the other, as the suite declares it.
    """
    found = {entry.primary for entry in (candidate, baseline) if entry.primary}
    return found.pop() if len(found) == 1 else None


def family_of(candidate: Entry, baseline: Entry, name: str, columns: Sequence[str]) -> str | None:
    """Return the family of a row, its name -> its metrics.

    None where it is in none, or not in one on both sides, or where these disagree on which direction is better.
    """
    if len({entry.metrics[metric].higher_is_better for entry in (candidate, baseline) for metric in columns}) > 1:
        return None
    if name == primary_of(candidate, baseline):
        return PRIMARY
    found = {entry.families.get(metric) for entry in (candidate, baseline) for metric in columns}
    return found.pop() if len(found) == 1 else None


def plain_contrast(candidate: Entry, baseline: Entry, name: str, columns: Sequence[str]) -> Contrast:
    """Return a contrast without a test or a verdict."""
    sides = [[entry.metrics[metric] for metric in columns] for entry in (candidate, baseline)]
    everything = [summary for side in sides for summary in side]
    directions = {summary.higher_is_better for summary in everything}
    units = {summary.unit for summary in everything}
    log = units == {"perplexity"}
    means = [mean([summary.mean for summary in side], log=log) for side in sides]
    centres = [mean([mean(s.values or (s.mean,), log=log) for s in side], log=log) for side in sides]
    return Contrast(
        candidate=candidate.id,
        metric=name,
        tasks=tuple(metric.split("/", 1)[0] for metric in columns),
        unit=units.pop() if len(units) == 1 else "score",
        higher_is_better=directions.pop() if len(directions) == 1 else None,
        baseline_mean=means[1],
        candidate_mean=means[0],
        effect=math.log(centres[0] / centres[1]) if log else centres[0] - centres[1],
        log_scale=log,
        verdict=None,
        family=family_of(candidate, baseline, name, columns),
        secondary=any(summary.secondary for summary in everything),
        small_n=any(SMALL_N_FLAG in summary.flags for summary in everything),
    )


def _judged(plain: Contrast, ours: Sequence[Series], theirs: Sequence[Series]) -> Contrast:
    """Return a contrast with its test; `ours` and `theirs` are the candidate's and the baseline's, for each task."""
    if not len(ours) == len(theirs) == len(plain.tasks):
        return replace(plain, verdict="undetermined", why="the values of single seeds are not known")
    found = compare_rows(ours, theirs)
    if isinstance(found, str):
        return replace(plain, verdict="undetermined", why=found)
    if found.test == EQUAL:
        return replace(plain, **{**vars(found), "p": None, "test": None}, verdict="tied", why="all values are equal")
    return replace(plain, **vars(found), why=SMALL_N if plain.small_n else None)


def _within(ours: Sequence[Series], theirs: Sequence[Series]) -> tuple[WithinSeed, ...]:
    """Return the tests within each common seed, of one task; a row without seeds is paired with each of its rival's."""
    if not len(ours) == len(theirs) == 1:
        return ()
    (left,), (right,) = ours, theirs
    common = [seed for seed in left.values if seed in right.values or None in right.values]
    found = [within_seed(left, right, seed) for seed in (right.values if None in left.values else common)]
    return tuple(test for test in found if test is not None)


def describing(contrast: Contrast) -> Contrast:
    """Return a contrast without what would tell it from noise."""
    repeated = DUPLICATES.get(contrast.metric.rpartition("/")[2])
    if contrast.higher_is_better is None:
        why = "it has no better direction"
    else:
        why = f"it repeats {repeated}" if repeated else "the entries have no common family of tests for it"
    return replace(
        contrast,
        verdict=None,
        p=None,
        detectable=None,
        detectable_ci95=None,
        why=f"descriptive, without a verdict: {why}",
    )


def adjusted(contrasts: Sequence[Contrast]) -> list[Contrast]:
    """Return one candidate's contrasts with their p adjusted within each family, and the verdicts that follow."""
    settled: dict[str, Contrast] = {}
    for family in dict.fromkeys(contrast.family for contrast in contrasts):
        tested = [contrast for contrast in contrasts if contrast.family == family and contrast.p is not None]
        deciding = [contrast for contrast in tested if not contrast.small_n]
        for among in (tested, deciding):  # metrics that decide something pay for none that do not
            adjusted = holm([contrast.p for contrast in among if contrast.p is not None])
            for contrast, p_holm in zip(among, adjusted, strict=True):
                verdict = _verdict(contrast, p_holm)
                settled[contrast.metric] = replace(contrast, p_holm=p_holm, tests=len(among), verdict=verdict)
    return [settled.get(contrast.metric, contrast) for contrast in contrasts]


def _verdict(contrast: Contrast, p_holm: float) -> Verdict:
    if contrast.small_n:
        return "undetermined"
    if p_holm > ALPHA:
        return "tied"
    return "better" if (contrast.effect > 0) == contrast.higher_is_better else "worse"
