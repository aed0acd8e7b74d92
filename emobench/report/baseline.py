"""The objective that others are compared with where nobody names one."""

from __future__ import annotations

from collections.abc import Iterable

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
    for name in (USUAL, *_objectives(sorted(suites)), *sorted(names)):
        if name in names:
            return name
    return None


def _objectives(suites: Iterable[str]) -> list[str]:
    """Return the objectives of suites in their order; a suite that is not installed has none."""
    objectives: list[str] = []
    for name in suites:
        try:
            objectives += find_suite(name).objectives
        except UserError:
            continue
    return objectives
