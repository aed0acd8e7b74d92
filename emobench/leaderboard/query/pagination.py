"""Which entries of a large board are read and shown at once: the newest groups, as many as fit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from emobench.core.errors import EmobenchError
from emobench.leaderboard.comparable import differences
from emobench.leaderboard.entry import Entry
from emobench.leaderboard.store import Leaderboard, Row


@dataclass(frozen=True, kw_only=True)
class Page:
    """`left_out` counts the rows that are not among the `entries`, and `cut` those of them that are of their group."""

    entries: tuple[Entry, ...]
    left_out: int
    cut: int
    problems: tuple[str, ...]

    @property
    def more(self) -> str:
        """What is not shown, in a sentence; empty where everything is."""
        if not self.left_out:
            return ""
        table = (
            f", {self.cut} of them of this table, whose marks and ranks are among the rows shown" if self.cut else ""
        )
        entries = "1 more entry" if self.left_out == 1 else f"{self.left_out:,} more entries"
        return f"{entries}{table}: narrow with --model, --objective, --suite or --since, or show more with --rows N."


def read_page(board: Leaderboard, rows: Sequence[Row], limit: int, around: Collection[str] = ()) -> Page:
    """Read the groups of rows that may be compared, the newest group first, until `limit` rows are reached.

    A group is read whole, with the `pretrained` rows that belong to it; only where the first one alone is larger than
    `limit`, its newest rows are, and its newest `pretrained` one. With `around`, only the groups that hold one of
    these ids are read, and these ids before other rows of a group that is too large. An entry that cannot be read is
    skipped, and named in `problems`.
    """
    problems: list[str] = []

    @functools.cache
    def read(row: Row) -> Entry | None:
        try:
            return board.read(row)
        except EmobenchError as error:
            problems.append(str(error))
            return None

    def joins(untrained: Row, group: Sequence[Row]) -> bool:
        one, other = read(untrained), next(filter(None, map(read, group)), None)
        return one is not None and other is not None and not differences(one, other)

    shown: dict[str, Row] = {}
    cut = 0
    for group in _groups(rows, joins, frozenset(around)):
        fresh = [row for row in group if row.id not in shown]
        if shown and len(shown) + len(fresh) > limit:
            break
        plain = next((row for row in fresh if row.untrained), None)
        kept = sorted(fresh, key=lambda row: row is not plain)[:limit]
        cut = len(fresh) - len(kept)
        shown |= {row.id: row for row in kept}
    entries = tuple(filter(None, map(read, shown.values())))
    left = 0 if around else len(rows) - len(shown)
    return Page(entries=entries, left_out=left or cut, cut=cut, problems=tuple(problems))


def _groups(
    rows: Sequence[Row], joins: Callable[[Row, Sequence[Row]], bool], around: frozenset[str]
) -> Iterator[list[Row]]:
    """Yield the comparable groups, the newest first, each with the `pretrained` rows that belong to it."""
    trained: dict[str, list[Row]] = {}
    untrained: dict[tuple[str, int, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row.id in around, row.created, row.id), reverse=True):
        if row.untrained:
            untrained.setdefault(_place(row), []).append(row)
        else:
            trained.setdefault(row.comparison_key, []).append(row)
    alone = [[row] for of_place in untrained.values() for row in of_place]
    ordered = sorted([*trained.values(), *alone], key=lambda group: _place(group[0]))
    for group in sorted(ordered, key=lambda group: max(row.created for row in group), reverse=True):
        place = _place(group[0])
        if not group[0].untrained:
            group = [*group, *(row for row in untrained.get(place, ()) if joins(row, group))]
        elif any(joins(group[0], other) for other in trained.values() if _place(other[0]) == place):
            continue  # shown with that group
        if not around or any(row.id in around for row in group):
            yield group


def _place(row: Row) -> tuple[str, int, str]:
    return row.suite, row.suite_version, row.model
