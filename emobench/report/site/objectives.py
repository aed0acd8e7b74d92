"""What a page says of the objectives of its entries: each one's equation, source and code, once for all entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from emobench.leaderboard.entry import Entry

Facts = dict[str, Any]
FactsOf = Callable[[Entry], Sequence[Facts]]
"""The terms of an entry's objective as they are installed here, () where it is not: {"name", "version", "equation",
"about", "source", "code"}. `code` is None unless it is the code that the entry was trained with."""


class PageObjectives:
    """Numbers what is known of objectives; entries of one objective and one code share a number."""

    def __init__(self, facts_of: FactsOf) -> None:
        self.plain: list[Sequence[Facts]] = []
        self._facts_of = facts_of
        self._numbers: dict[tuple[str, str | None], int | None] = {}

    def number(self, entry: Entry) -> int | None:
        """Return the place of an entry's objective in `plain`, None where nothing is known of it."""
        key = entry.objective.name, entry.objective.source_sha256
        if key not in self._numbers:
            found = () if entry.untrained else self._facts_of(entry)
            self._numbers[key] = len(self.plain) if found else None
            self.plain += [found] if found else []
        return self._numbers[key]
