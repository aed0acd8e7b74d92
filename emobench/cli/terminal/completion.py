"""What the shell completes: names of objectives, suites, models, entries, metrics and settings.

Nothing here imports torch. If something cannot be read, such as a plugin or a board, nothing is completed or printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MOST_ENTRIES = 100
"""Entries of a board, the newest ones, whose metrics are read."""
Names = Callable[[Mapping[str, Any]], Iterable[str]]
"""Returns the names for an option, given the values of the options before it."""


def complete_names(parameter: Any) -> None:
    """Let the shell complete an option or argument by the names of `NAMES`."""
    parameter.shell_complete = partial(_complete, parameter, parameter.shell_complete)


def _complete(parameter: Any, otherwise: Callable[..., Any], context: Any, incomplete: str) -> list[Any]:
    command = context.command_path.partition(" ")[2]
    for key in (*parameter.opts, f"{command} {parameter.name}"):
        if key in NAMES:
            try:
                known = sorted(set(NAMES[key](context.params)))
            except Exception:  # a traceback would break the line that the user types
                return []
            return [
                SimpleNamespace(value=name, type="plain", help=None) for name in known if name.startswith(incomplete)
            ]
    return otherwise(context, incomplete)


def _objectives(_: object) -> list[str]:
    from emobench.core.settings import PRETRAINED
    from emobench.registry import objective_names

    return [*objective_names(), PRETRAINED]


def _suites(_: object) -> list[str]:
    from emobench.registry import suite_names

    return suite_names()


def _models(_: object) -> Iterable[str]:
    from emobench.models.catalog import CATALOG

    return CATALOG


def _settings(_: object) -> list[str]:
    from emobench.runs.inspect.settings import settings

    return [setting.name for setting in settings()]


def _assignments(_: object) -> list[str]:
    return [f"{name}=" for name in _settings(_)]


def _entries(given: Mapping[str, Any]) -> list[str]:
    return [*_objectives(given), *(path.stem for path in _files(given))]


def _metrics(given: Mapping[str, Any]) -> Iterable[str]:
    """Return the metrics of the board's newest entries, with and without their tasks."""
    from emobench.core.reading import parse_json, read_text

    names: set[str] = set()
    newest = sorted(_files(given), key=lambda path: path.stat().st_mtime)
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


NAMES: dict[str, Names] = {
    "--objective": _objectives,
    "--suite": _suites,
    "--model": _models,
    "--set": _assignments,
    "--metric": _metrics,
    "--baseline": _entries,
    "entry": _entries,
    "entries": _entries,
    "suites show name": _suites,
    "objectives show name": _objectives,
    "objectives check names": _objectives,
    "models path model": _models,
    "settings word": _settings,
}
"""Names by an option, an argument of any command, or a command and its argument."""
