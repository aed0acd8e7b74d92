"""The cells of a board's table: a number as text, what is remarked of it, and its values for charts and sorting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emobench.leaderboard.render import numbers as figures
from emobench.leaderboard.schema.entry import Entry, MetricSummary
from emobench.leaderboard.site.entry_details import flag_text
from emobench.leaderboard.site.groups import Group
from emobench.leaderboard.site.text import interval, minus, rounded


class Flags:
    """What is remarked of a suite's numbers: flags of all of them are said once, others are marked by a number."""

    def __init__(self, values: Sequence[Mapping[str, MetricSummary]]) -> None:
        metrics = [metric for of_entry in values for metric in of_entry.values()]
        found = list(dict.fromkeys(flag for metric in metrics for flag in metric.flags))
        self._shared = [flag for flag in found if all(flag in metric.flags for metric in metrics)]
        self._marked = [flag for flag in found if flag not in self._shared]

    def marks(self, metric: MetricSummary) -> str:
        return " ".join(str(self._marked.index(flag) + 1) for flag in metric.flags if flag in self._marked)

    def legend(self) -> list[str]:
        shared = [f"All numbers: {flag_text(flag)}." for flag in self._shared]
        return shared + [f"[{number}] {flag_text(flag)}." for number, flag in enumerate(self._marked, 1)]


def cell(entry: Entry, group: Group, key: str, places: int, flags: Flags) -> dict[str, Any] | str | None:
    """Return a cell: facts of what was measured, the reason of what is missing, or None."""
    metric = group.values[entry.id].get(key)
    if metric is None:
        return entry.missing.get(key)
    times = figures.scale(metric.unit)
    text, _, spread = minus(figures.number(metric, places)).partition(" ± ")
    low, high = metric.ci95 or (None, None)
    covered = interval(metric.ci95, metric.unit, places)
    facts = {
        "mean": rounded(metric.mean * times),
        "low": None if low is None else rounded(low * times),
        "high": None if high is None else rounded(high * times),
        "text": text,
        "spread": spread,
        "interval": covered,
        "about": "; ".join(map(flag_text, metric.flags)),
        "marks": flags.marks(metric),
        "best": group.best.get(key) == entry.id,
    }
    return {name: value for name, value in facts.items() if value not in (None, "", False)}
