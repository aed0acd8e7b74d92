"""The examples that all runs of a comparison have: a test is over these.

A run may lack an example: a judge gave no verdict, a text is too short for a score. Where few are missing, the others
tell nearly as much. Where many are, the runs may lack the hard ones, and the others would be a selection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emobench.errors import MetricError
from emobench.tasks.scores import MOST_MISSING, Examples, single_examples


@dataclass(frozen=True)
class Common:
    """The ids of the examples that every run has, and how many examples any run has."""

    ids: frozenset[str]
    total: int

    @property
    def complete(self) -> bool:
        return len(self.ids) == self.total


def common_examples(*sides: Sequence[frozenset[str]]) -> Common:
    """Return the common examples of the runs of each side; of each run the ids of what it scored (`scored`).

    Raises MetricError where the runs of a side lack more than 5 % of all examples.
    """
    first = sides[0][0]
    if all(ids == first for side in sides for ids in side):
        return Common(first, len(first))
    everything = first.union(*(ids for side in sides for ids in side))
    kept = [frozenset.intersection(*side) for side in sides]
    common = frozenset.intersection(*kept)
    if not common:
        raise MetricError("the per-example results are not available for the same examples")
    missing = len(everything) - min(map(len, kept))
    if missing > MOST_MISSING * len(everything):
        share = f"{missing:,} of {len(everything):,}"
        raise MetricError(f"{share} examples are missing in a run of one side; at most {MOST_MISSING:.0%} may be")
    return Common(common, len(everything))


def scored(sampled: Examples) -> frozenset[str]:
    """Return the ids of the examples that a score is made of: one without weight is in no score, and so missing."""
    return frozenset(example for example, (_, weight) in single_examples(sampled).items() if weight)
