"""Which entries of a large board are read and shown at once: the newest groups, as many as fit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from emobench.errors import EmobenchError
from emobench.leaderboard.schema.comparable import differences
from emobench.leaderboard.schema.entry import Entry
from emobench.leaderboard.store.board import Leaderboard
from emobench.leaderboard.store.row import Row


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
    return _Reader(board, rows, frozenset(around)).page(limit)


class _Reader:
    def __init__(self, board: Leaderboard, rows: Sequence[Row], around: frozenset[str]) -> None:
        self.board, self.rows, self.around = board, rows, around
        self.problems: list[str] = []
        self.held: dict[str, Entry | None] = {}
        self.trained: dict[str, list[Row]] = {}
        self.untrained: dict[tuple[str, int, str], list[Row]] = {}
        for row in sorted(rows, key=lambda r: (r.id in around, r.created, r.id), reverse=True):
            if row.untrained:
                self.untrained.setdefault(_place(row), []).append(row)
            else:
                self.trained.setdefault(row.comparison_key, []).append(row)

    def page(self, limit: int) -> Page:
        shown: dict[str, Row] = {}
        cut = 0
        for group in self._groups():
            fresh = [row for row in group if row.id not in shown]
            if shown and len(shown) + len(fresh) > limit:
                break
            plain = next((row for row in fresh if row.untrained), None)
            kept = sorted(fresh, key=lambda row: row is not plain)[:limit]
            cut = len(fresh) - len(kept)
            shown |= {row.id: row for row in kept}
        read = [self._read(row) for row in shown.values()]
        left = 0 if self.around else len(self.rows) - len(shown)
        entries = tuple(entry for entry in read if entry)
        return Page(entries=entries, left_out=left or cut, cut=cut, problems=tuple(self.problems))

    def _groups(self) -> Iterator[list[Row]]:
        """Yield the groups, the newest first, each with its `pretrained` rows."""
        alone = [[row] for rows in self.untrained.values() for row in rows]
        ordered = sorted([*self.trained.values(), *alone], key=lambda group: _place(group[0]))
        for group in sorted(ordered, key=lambda group: max(row.created for row in group), reverse=True):
            if group[0].untrained:
                whole = [] if self._hosted(group[0]) else group
            else:
                whole = [*group, *(row for row in self.untrained.get(_place(group[0]), ()) if self._joins(row, group))]
            if whole and (not self.around or any(row.id in self.around for row in whole)):
                yield whole

    def _hosted(self, row: Row) -> bool:
        """Return whether a `pretrained` row belongs to a group of trained ones, with which it is shown."""
        near = (group for group in self.trained.values() if _place(group[0]) == _place(row))
        return any(self._joins(row, group) for group in near)

    def _joins(self, untrained: Row, group: Sequence[Row]) -> bool:
        one, other = self._read(untrained), next(filter(None, map(self._read, group)), None)
        return one is not None and other is not None and not differences(one, other)

    def _read(self, row: Row) -> Entry | None:
        if row.id not in self.held:
            try:
                self.held[row.id] = self.board.read(row)
            except EmobenchError as error:
                self.held[row.id] = None
                self.problems.append(str(error))
        return self.held[row.id]


def _place(row: Row) -> tuple[str, int, str]:
    return row.suite, row.suite_version, row.model
