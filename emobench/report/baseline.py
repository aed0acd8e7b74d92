"""The objective that others are compared with where nobody names one."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from emobench.core.errors import UserError
from emobench.leaderboard.entry import Entry
from emobench.registry import find_suite

USUAL = "mle"


def default_baseline(entries: Iterable[Entry]) -> str | None:
    """Return mle if an entry has it, else the first objective of their suites, else the first by name.

    None if no entry was trained. The order in which entries were recorded decides nothing.
    """
    names: set[str] = set()
    suites: set[str] = set()
    for entry in entries:
        if not entry.untrained:
            names.add(entry.objective.name)
            suites.add(entry.suite.name)
    preferred = [USUAL]
    for suite in sorted(suites):
        with suppress(UserError):  # a suite that is not installed has no order
            preferred += find_suite(suite).objectives
    for name in (*preferred, *sorted(names)):
        if name in names:
            return name
    return None
