"""The comparable groups of a page, with stars and ranks where the page can afford their tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emobench.leaderboard.comparable import groups, older_code
from emobench.leaderboard.entry import Entry, MetricSummary
from emobench.leaderboard.labels import MEAN
from emobench.leaderboard.query.standings import Standings, View, group_metrics, standings
from emobench.leaderboard.run_files import ExamplesOf
from emobench.leaderboard.stats.classical import MIN_SEEDS
from emobench.leaderboard.stats.series import mean_summary
from emobench.report.notes import representative

RANK_BUDGET = 15_000
"""Pairs of rows that are tested for the ranks of a page."""


@dataclass(frozen=True)
class BoardGroup:
    """Rows that may be ranked together, and whether they were: every pair is tested for it."""

    standings: Standings
    ranked: bool

    @property
    def rows(self) -> tuple[Entry, ...]:
        return self.standings.rows

    @property
    def first(self) -> Entry:
        """The row that tells what the group shares."""
        return representative(self.rows)

    @property
    def tested(self) -> bool:
        """Whether rows have enough seeds for a verdict."""
        return len(self.rows) > 1 and any(len(entry.seeds) >= MIN_SEEDS for entry in self.rows)

    @property
    def mean(self) -> str | None:
        """The row of the mean over tasks, "mean/<metric>", where the group has one."""
        ranking = self.standings.ranking
        return f"{MEAN}/{ranking.name}" if ranking and ranking.means else None

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that a row has, the secondary ones last: a page hides these until they are asked for."""
        first = (*([self.mean] if self.mean else []), *self.standings.metrics)
        rest = (m for m in group_metrics(self.rows) if m not in first and any(m in e.metrics for e in self.rows))
        return (*first, *rest)

    def value(self, entry: Entry, key: str) -> MetricSummary | None:
        """Return a metric of a row, or its mean over tasks, without an interval, if it has them all."""
        ranking = self.standings.ranking
        if ranking is None or key != self.mean:
            return entry.metrics.get(key)
        values = ranking.means.get(entry.id)
        return mean_summary(entry.metrics[ranking.columns[0]], values) if values else None


def board_groups(entries: Sequence[Entry], examples_of: ExamplesOf | None) -> list[BoardGroup]:
    """Return the comparable groups of a page, those with verdicts first; of groups beyond the budget none is ranked."""
    left, found = RANK_BUDGET, []
    for members in groups(entries):
        pairs = len(members) * (len(members) - 1) // 2
        ranked = pairs <= left
        left -= pairs if ranked else 0
        shown = standings(members, examples_of, _view(members))[0] if ranked else _unranked(members)
        found.append(BoardGroup(shown, ranked))
    return _in_order(found)


def _view(members: Sequence[Entry]) -> View:
    """Return the order of a group's rows: that of its primary endpoint, which of several tasks is their mean."""
    primary = next((entry.primary for entry in members if entry.primary), None)
    return View(sort=primary) if primary in group_metrics(members) else View()


def _unranked(members: Sequence[Entry]) -> Standings:
    older = older_code(members)
    rows = sorted(members, key=lambda e: (e.id in older, not e.untrained, e.provenance.created, e.id))
    asked = View().shown(group_metrics(rows), rows)
    shown = tuple(metric for metric in asked if any(metric in entry.metrics for entry in rows))
    return Standings(rows=tuple(rows), older=older, metrics=shown)


def _in_order(found: Sequence[BoardGroup]) -> list[BoardGroup]:
    """Return groups with those first that can have a verdict; small models first, the groups of a model together."""
    tested = {group.first.model.name for group in found if group.tested}

    def place(group: BoardGroup) -> tuple[bool, int, str, bool, str, str]:
        entry = group.first
        model = entry.model
        created = entry.provenance.created
        return model.name not in tested, model.parameters or 0, model.name, not group.tested, created, entry.id

    return sorted(found, key=place)
