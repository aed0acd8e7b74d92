"""Whether a rerun has the numbers of its entry: exactly, but for float rounding, or within the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from emobench.leaderboard.entry import ROUNDING, Entry, MetricSummary

Verdict = Literal["exactly", "float rounding", "within the spread over seeds", "differs", "missing now", "new"]


@dataclass(frozen=True)
class Agreement:
    """One metric of an entry, and of its rerun. Fractions are in [0, 1]."""

    metric: str
    recorded: float | None
    rerun: float | None
    difference: float | None
    """Of the means: the rerun's less the entry's."""
    std: float | None
    """The entry's own standard deviation over seeds; None with one seed."""
    verdict: Verdict

    def expected(self, *, elsewhere: bool) -> bool:
        """Return whether it is what a rerun should give: `elsewhere`, with other packages, hardware or data."""
        if self.verdict == "within the spread over seeds":
            return elsewhere
        return self.verdict in ("exactly", "float rounding", "new")


def agreements(entry: Entry, rerun: Entry) -> list[Agreement]:
    """Return how each metric of an entry agrees with that of its rerun, and the metrics that only one of them has."""
    return list(_agreements(entry, rerun))


def _agreements(entry: Entry, rerun: Entry) -> Iterator[Agreement]:
    for name, was in entry.metrics.items():
        here = rerun.metrics.get(name)
        if here is None:
            yield Agreement(name, was.mean, None, None, was.std, "missing now")
        else:
            yield Agreement(name, was.mean, here.mean, here.mean - was.mean, was.std, _verdict(was, here))
    for name, new in rerun.metrics.items():
        if name not in entry.metrics:
            yield Agreement(name, None, new.mean, None, None, "new")


def _verdict(was: MetricSummary, here: MetricSummary) -> Verdict:
    if was.values == here.values:
        return "exactly"
    if len(was.values) == len(here.values) and _rounded(was.values, here.values):
        return "float rounding"
    if was.std is not None and abs(here.mean - was.mean) <= was.std:
        return "within the spread over seeds"
    return "differs"


def _rounded(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= ROUNDING * max(abs(a), abs(b)) for a, b in zip(one, other, strict=True))
