"""What a reader asked to see of a board: which metrics, in which order, against which row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

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


def wanted(metric: str, patterns: Sequence[str]) -> bool:
    """Return whether "<task>/<metric>" is asked for: as it is, by its metric's name, or by a pattern such as sst2/*."""
    name = metric.split("/", 1)[1]
    return not patterns or any(fnmatchcase(metric if "/" in p else name, p) for p in patterns)


def named(name: str, metrics: Iterable[str]) -> tuple[str, ...]:
    """Return the metrics that a name means: `sst2/accuracy` one, `accuracy` that of each task."""
    given = tuple(metrics)
    return (name,) if name in given else tuple(m for m in given if m.split("/", 1)[1] == name)
