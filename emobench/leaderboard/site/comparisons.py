"""The comparisons that a page shows, computed when it is built: a page computes no statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from emobench.config import to_plain
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.schema.examples import ExamplesOf
from emobench.leaderboard.stats.compare import compare
from emobench.leaderboard.stats.contrasts import SeriesReader

ALL_PAIRS = 12
"""Entries of a group of which every pair is compared; of more, each with the baseline."""
BUDGET = 1500
"""Pairs of one page. It names the command that compares any others."""


class Comparisons:
    """Compares entries of comparable groups until the page's budget of pairs is spent."""

    def __init__(self, examples_of: ExamplesOf | None, budget: int = BUDGET) -> None:
        self._left = budget
        self._series = SeriesReader(examples_of)

    def of(self, group: Sequence[Entry], baseline: int) -> list[dict[str, Any]]:
        """Return the contrasts of a group, plain; `baseline` and `candidate` are places in the group."""
        found = []
        for base, candidates in _pairs(len(group), baseline):
            if len(candidates) > self._left:
                break
            self._left -= len(candidates)
            made = compare(group[base], [group[place] for place in candidates], series=self._series)
            for place in candidates:
                found += [{**to_plain(c), "baseline": base, "candidate": place} for c in made.of(group[place])]
        return found


def _pairs(size: int, baseline: int) -> Iterator[tuple[int, list[int]]]:
    """Yield (baseline, candidates) with each pair once, those with the baseline first."""
    rest = [place for place in range(size) if place != baseline]
    if rest:
        yield baseline, rest
    if size <= ALL_PAIRS:
        for index, place in enumerate(rest[:-1]):
            yield place, rest[index + 1 :]
