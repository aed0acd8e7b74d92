"""The examples that all runs of a comparison have: a test is over these.

A run may lack an example: a judge gave no verdict, a text is too short for a score. Where few are missing, the others
tell nearly as much. Where many are, the runs may lack the hard ones, and the others would be a selection.

The runs may also name sampling units differently: a run that lacks one of two questions on a passage takes the other
for a unit of its own. All runs are therefore grouped alike: examples that are one unit in any run are one unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emobench.core.errors import MetricError
from emobench.data.sampling_units import joined_units
from emobench.tasks.scores import MOST_MISSING, Examples, single_examples, units_of


@dataclass(frozen=True)
class Scored:
    """The ids of the examples that a run's score is made of, and the run's sampling units."""

    ids: frozenset[str]
    sampled: Examples


@dataclass(frozen=True)
class Common:
    """The ids of the examples that every run has, and how many examples any run has.

    `units` is the sampling unit of each example that is not a unit of its own; None if all runs have the same examples
    in the same units.
    """

    ids: frozenset[str]
    total: int
    units: Mapping[str, str] | None

    @property
    def complete(self) -> bool:
        return len(self.ids) == self.total


def common_examples(*sides: Sequence[Scored]) -> Common:
    """Return the common examples of the runs of each side.

    Raises MetricError where the runs of a side lack more than 5 % of all examples.
    """
    ids, total = common_ids(*([run.ids for run in side] for side in sides))
    return Common(ids, total, _joint_units([run.sampled for side in sides for run in side]))


def common_ids(*sides: Sequence[frozenset[str]]) -> tuple[frozenset[str], int]:
    """Return the ids that all runs of all sides have, and how many ids any run has; raises as `common_examples`."""
    first = sides[0][0]
    if all(ids == first for side in sides for ids in side):
        return first, len(first)
    everything = first.union(*(ids for side in sides for ids in side))
    kept = [frozenset.intersection(*side) for side in sides]
    common = frozenset.intersection(*kept)
    if not common:
        raise MetricError("the per-example results are not available for the same examples")
    missing = len(everything) - min(map(len, kept))
    if missing > MOST_MISSING * len(everything):
        share = f"{missing:,} of {len(everything):,}"
        raise MetricError(f"{share} examples are missing in a run of one side; at most {MOST_MISSING:.0%} may be")
    return common, len(everything)


def _joint_units(runs: Sequence[Examples]) -> Mapping[str, str] | None:
    """Return `Common.units`: units that have a name or an example in common are one."""
    first = runs[0]
    if all(run.keys() == first.keys() and units_of(run) == units_of(first) for run in runs[1:]):
        return None
    names: dict[str, list[str]] = {}
    named: dict[str, str] = {}
    for run in runs:
        units = units_of(run)
        for example in single_examples(run):
            unit = units.get(example, example)
            names.setdefault(example, []).append(unit)
            if unit != example:
                named[example] = min(unit, named.get(example, unit))
    return {**named, **joined_units(names, named)}


def scored(sampled: Examples) -> Scored:
    """Return what a score is made of: an example without weight is in no score, and so missing."""
    ids = frozenset(example for example, (_, weight) in single_examples(sampled).items() if weight)
    return Scored(ids, sampled)
