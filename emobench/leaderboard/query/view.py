"""What a reader asked to see of a board: which metrics, in which order, against which row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from emobench.leaderboard.entry import Entry

ORDERS = ("created", "name")


@dataclass(frozen=True, kw_only=True)
class View:
    """`metrics` are patterns (see `wanted`), `sort` a metric or one of ORDERS, `baseline` an objective.

    `own` holds the ids of entries that stand first and stand out.
    """

    metrics: tuple[str, ...] = ()
    sort: str | None = None
    baseline: str | None = None
    intervals: bool = False
    own: frozenset[str] = frozenset()

    def sorted_by(self, metrics: Iterable[str]) -> tuple[str, ...]:
        """Return which of a group's metrics `sort` means: of those that it names, the ones asked for if any is."""
        found = named(self.sort, metrics) if self.sort else ()
        return tuple(metric for metric in found if wanted(metric, self.metrics)) or found

    def shown(self, metrics: Sequence[str], group: Sequence[Entry]) -> list[str]:
        """Return which of a group's metrics to show: those asked for, and what the rows are sorted by.

        Where none is asked for, all but the secondary ones are.
        """
        order = self.sorted_by(metrics)
        secondary = {m for entry in group for m, summary in entry.metrics.items() if summary.secondary}
        hidden = set() if self.metrics else secondary
        return [m for m in metrics if (wanted(m, self.metrics) and m not in hidden) or m in order]


def wanted(metric: str, patterns: Sequence[str]) -> bool:
    """Return whether "<task>/<metric>" is asked for: as it is, by its metric's name, or by a pattern of either."""
    name = metric.split("/", 1)[1]
    return not patterns or any(fnmatchcase(metric, p) or fnmatchcase(name, p) for p in patterns)


def named(name: str, metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that a name means: `sst2/accuracy` one, `accuracy` that of each task."""
    given = tuple(metrics)
    return (name,) if name in given else tuple(m for m in given if m.split("/", 1)[1] == name)
