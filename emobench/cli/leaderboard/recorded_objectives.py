"""The installed objectives that entries were trained with, for a board's page. An entry's file is never run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import UserError
from emobench.leaderboard.entry import Entry

LONGEST = 20_000
"""Characters of code that a page holds."""


def recorded_objective(entry: Entry) -> Sequence[dict[str, Any]]:
    """Return the facts of each term of an entry's objective, () where it is not installed here.

    The code is there only if its digest is the one that the entry recorded.
    """
    from emobench.cli.families import facts_of_terms  # with the objectives comes torch
    from emobench.registry import OBJECTIVES, load_objective, require_installed

    try:
        require_installed(entry.objective.name)
        terms = facts_of_terms(OBJECTIVES, entry.objective.name)
        same = load_objective(entry.objective.name).source_sha256 == entry.objective.source_sha256
    except UserError:
        return ()
    names = ("name", "version", "equation", "about", "source")
    return [{**{name: term[name] for name in names}, "code": _code(term["file"]) if same else None} for term in terms]


def _code(file: str) -> str | None:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return text if len(text) <= LONGEST else None
