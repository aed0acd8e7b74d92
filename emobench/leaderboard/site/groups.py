"""The comparable groups of a page, with stars and ranks where the page can afford their tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from emobench.leaderboard.query.ranks import Ranking, mean_summary
from emobench.leaderboard.query.standings import group_metrics, standings
from emobench.leaderboard.query.view import View
from emobench.leaderboard.schema.comparable import groups, older_code
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.schema.examples import ExamplesOf
from emobench.leaderboard.schema.labels import MEAN

MOST_RANKED = 30
"""Rows of a group that is ranked: every pair is tested for it."""
RANK_BUDGET = 15_000
"""Such pairs of a page."""

Best: TypeAlias = Mapping[str, str | None]
"""Metric -> id of the entry that is better than all others beyond noise, or None."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows that may be ranked together. `older` and `ranks` are by id; `ranked` says whether they were tested.

    `values` maps an id to its metrics, and to "mean/<metric>" where the group has a mean over tasks.
    """

    rows: tuple[Entry, ...]
    older: frozenset[str]
    metrics: tuple[str, ...]
    values: Mapping[str, Mapping[str, MetricSummary]]
    ranked: bool = False
    best: Best = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    untested: str | None = None
    """Why nothing is marked as best, where rows cannot be told apart."""

    @property
    def first(self) -> Entry:
        """The row that tells what the group shares: a trained one, if there is one."""
        return next((entry for entry in self.rows if not entry.untrained), self.rows[0])


class Groups:
    """Splits entries into groups until the budget of a page is spent; later ones, and large ones, are not ranked."""

    def __init__(self, examples_of: ExamplesOf | None) -> None:
        self._left = RANK_BUDGET
        self._examples_of = examples_of

    def of(self, entries: Sequence[Entry]) -> list[Group]:
        """Return the comparable groups, small models first."""
        return sorted(map(self._group, groups(entries)), key=_place)

    def _group(self, members: Sequence[Entry]) -> Group:
        pairs = len(members) * (len(members) - 1) // 2
        if len(members) > MOST_RANKED or pairs > self._left:
            older = older_code(members)
            rows = sorted(members, key=lambda e: (e.id in older, not e.untrained, e.provenance.created, e.id))
            columns = View().shown(group_metrics(rows), rows)
            metrics = [m for m in columns if any(m in entry.metrics for entry in rows)]
            values = {entry.id: entry.metrics for entry in rows}
            return Group(rows=tuple(rows), older=older, metrics=tuple(metrics), values=values)
        self._left -= pairs
        found = standings(members, self._examples_of)[0]
        mean = (f"{MEAN}/{found.ranking.name}",) if found.ranking and found.ranking.means else ()
        return Group(
            rows=found.rows,
            older=found.older,
            metrics=(*mean, *found.metrics),
            values={entry.id: {**entry.metrics, **_mean(entry, found.ranking)} for entry in found.rows},
            ranked=True,
            best=found.best,
            ranks=found.ranking.places if found.ranking else {},
            untested=next(iter(found.untested.values()), None) if not any(found.best.values()) else None,
        )


def _mean(entry: Entry, ranking: Ranking | None) -> dict[str, MetricSummary]:
    """Return the mean over tasks of an entry that has them all, without an interval."""
    values = ranking.means.get(entry.id) if ranking else None
    if ranking is None or not values:
        return {}
    return {f"{MEAN}/{ranking.name}": mean_summary(entry.metrics[ranking.columns[0]], values)}


def _place(group: Group) -> tuple[int, str, str, str]:
    entry = group.first
    return entry.model.parameters or 0, entry.model.name, entry.provenance.created, entry.id
