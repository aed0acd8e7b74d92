"""The comparisons that a page shows, computed and written as text when it is built: a page computes no statistics."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from emobench.leaderboard.entry import Entry
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.compare import NO_VERDICT, Contrast, SeriesReader, compare
from emobench.report import numbers as figures
from emobench.report.charts.compare_chart import unit_of
from emobench.report.numbers import ABSENT

ALL_PAIRS = 12
"""Entries of a group of which every pair is compared; of more, each with the baseline."""
BUDGET = 1500
"""Pairs of one page. It names the command that compares any others."""
FIELDS: tuple[str, ...] = (
    "baseline", "candidate", "metric", "effect", "low", "high", "unit", "text", "interval", "p", "family", "detectable",
    "word", "why", "test", "within",
)  # fmt: skip
"""What a page keeps of a contrast; `baseline` and `candidate` are places in the group, `metric` one of the suite."""

_TURNED = {"better": "worse", "worse": "better"}


class PageContrasts:
    """Compares entries of comparable groups until the page's budget of pairs is spent."""

    def __init__(self, examples_of: ExamplesOf | None, budget: int = BUDGET) -> None:
        self._left = budget
        self._examples_of = examples_of

    def of(self, group: Sequence[Entry], baseline: int, keys: Sequence[str]) -> list[Any]:
        """Return the contrasts of a group in both directions, as lists of `FIELDS`."""
        numbers = {key: number for number, key in enumerate(keys)}
        found = []
        series = SeriesReader(self._examples_of)
        for base, candidates in _pairs(len(group), baseline):
            if len(candidates) > self._left:
                break
            self._left -= len(candidates)
            made = compare(group[base], [group[place] for place in candidates], series=series)
            for place in candidates:
                for contrast in made.of(group[place]):
                    if (number := numbers.get(contrast.metric)) is not None:
                        found.append([base, place, number, *_shown(contrast)])
                        found.append([place, base, number, *_shown(_turned(contrast))])
        return found


def _pairs(size: int, baseline: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (baseline, candidates) with each pair once, those with the baseline first."""
    rest = [place for place in range(size) if place != baseline]
    if rest:
        yield baseline, rest
    if size <= ALL_PAIRS:
        for index, place in enumerate(rest[:-1]):
            yield place, rest[index + 1 :]


def _turned(contrast: Contrast) -> Contrast:
    """Return the same contrast with the candidate as baseline."""
    within = []
    for seed, one in contrast.within:
        within.append((seed, replace(one, effect=-one.effect, ci95=_negative(one.ci95))))
    return replace(
        contrast,
        baseline_mean=contrast.candidate_mean,
        candidate_mean=contrast.baseline_mean,
        effect=-contrast.effect,
        ci95=_negative(contrast.ci95),
        verdict=_TURNED.get(contrast.verdict or "", contrast.verdict),
        within=tuple(within),
    )


def _negative(ci95: tuple[float, float] | None) -> tuple[float, float] | None:
    return ci95 and (-ci95[1], -ci95[0])


def _shown(contrast: Contrast) -> list[Any]:
    """Return what `FIELDS` keep of a contrast, after its places: numbers for charts, and text."""
    places = figures.effect_decimals(contrast)
    adjusted = "not adjusted" if contrast.tests == 1 else f"{contrast.tests} tests (Holm)"
    low, high = contrast.ci95 or (None, None)
    why = " ".join(contrast.notes).removeprefix(f"{NO_VERDICT}, without a verdict: ")
    within = []
    for seed, one in contrast.within:
        effect = figures.contrast_effect(contrast, one.effect, places)
        interval = figures.contrast_interval(contrast, one.ci95, places)
        within.append([ABSENT if seed is None else str(seed), effect, interval, figures.p_value(one.p), one.test])
    return [
        _rounded(contrast, contrast.effect),
        _rounded(contrast, low),
        _rounded(contrast, high),
        unit_of(contrast),
        figures.contrast_effect(contrast, contrast.effect, places),
        figures.contrast_interval(contrast, contrast.ci95, places),
        figures.p_value(contrast.p_holm),
        ABSENT if contrast.p_holm is None else f"{contrast.family}, {adjusted}",
        figures.contrast_effect(contrast, contrast.detectable, places, ""),
        contrast.word or ABSENT,
        why or ABSENT,
        contrast.test or ABSENT,
        within,
    ]


def _rounded(contrast: Contrast, value: float | None) -> float | None:
    """Return an effect with more digits than are shown; JSON has no infinity, which a difference may be."""
    shown = math.inf if value is None else figures.effect(contrast, value)
    return float(f"{shown:.6g}") if math.isfinite(shown) else None
