"""Completion in the shell: names of objectives, suites, models, entries, metrics and settings.

Nothing here imports torch. If something cannot be read, such as a plugin or a board, nothing is completed or printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MOST_ENTRIES = 100
"""Entries of a board, the newest ones, whose metrics are read."""
SORTS = {
    "--objective": "objectives",
    "--suite": "suites",
    "--model": "models",
    "--set": "assignments",
    "--metric": "metrics",
    "--baseline": "entries",
    "entry": "entries",
    "entries": "entries",
    "suites show name": "suites",
    "objectives show name": "objectives",
    "objectives check names": "objectives",
    "models path model": "models",
    "settings word": "settings",
}
"""The sort of names of an option, of an argument of any command, or of a command and its argument."""


def complete_names(parameter: Any) -> None:
    """Let the shell complete an option or argument by the names of `SORTS`."""
    parameter.shell_complete = partial(_complete, parameter, parameter.shell_complete)


def _complete(parameter: Any, otherwise: Any, context: Any, incomplete: str) -> list[Any]:
    command = context.command_path.partition(" ")[2]
    for key in (*parameter.opts, f"{command} {parameter.name}"):
        if key in SORTS:
            try:
                known = sorted(set(_names(SORTS[key], context.params)))
            except Exception:  # a traceback would break the line that the user types
                return []
            chosen = [name for name in known if name.startswith(incomplete)]
            return [SimpleNamespace(value=name, type="plain", help=None) for name in chosen]
    return otherwise(context, incomplete)


def _names(sort: str, given: Mapping[str, Any]) -> Iterable[str]:
    """Return all names of a sort, given the values of the options before."""
    from emobench import registry
    from emobench.core.settings import PRETRAINED
    from emobench.models.catalog import CATALOG
    from emobench.runs.inspect.settings import settings

    if sort == "suites":
        return registry.suite_names()
    if sort == "models":
        return CATALOG
    if sort in ("settings", "assignments"):
        sign = "=" if sort == "assignments" else ""
        return [f"{setting.name}{sign}" for setting in settings()]
    if sort == "metrics":
        return _metrics(_files(given))
    objectives = [*registry.objective_names(), PRETRAINED]
    if sort == "entries":
        objectives += [path.stem for path in _files(given)]
    return objectives


def _metrics(files: list[Path]) -> set[str]:
    """Return the metrics of a board's newest entries, with and without their tasks."""
    from emobench.core.reading import parse_json, read_text

    names: set[str] = set()
    newest = sorted(files, key=lambda path: path.stat().st_mtime)
    for path in newest[-MOST_ENTRIES:]:
        for name in parse_json(read_text(path))["metrics"]:
            names |= {name, name.rpartition("/")[2]}
    return names


def _files(given: Mapping[str, Any]) -> list[Path]:
    """Return the files of the entries of the first board."""
    from emobench.cli.options import DEFAULT_BOARD

    boards = given.get("leaderboard") or DEFAULT_BOARD
    board = boards[0] if isinstance(boards, (list, tuple)) else boards
    return list(Path(board).glob("*-v*/*.json"))
