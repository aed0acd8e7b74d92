"""From a judged entry to AlpacaEval's annotations: two responses to each instruction, and which one is preferred."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.leaderboard.entry import Entry
from emobench.runs.inspect.recorded_runs import texts_of
from emobench.runs.inspect.samples import run_of


def has_judgements(entry: Entry, runs: Path) -> bool:
    """Return whether `annotations_of` finds judged pairs of an entry in `runs`."""
    try:
        return bool(annotations_of(entry, runs))
    except UserError:
        return False


def annotations_of(
    entry: Entry, runs: Path, tasks: Sequence[str] | None = None, seed: int | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the judged pairs of each task (only of `tasks`, if any), of the run of a seed, the first one by default.

    They are as the package alpaca-eval writes them, in the order of the instructions; `preference` is the mean of both
    orders, and None without a verdict. Raises ConfigError where no judge compared responses, DataError where files are
    gone.
    """
    found = {
        task: [
            {
                "instruction": text.prefix,
                "output_1": text.human,
                "generator_1": "reference",
                "output_2": text.generated,
                "generator_2": entry.objective.label,
                "preference": None if text.preferred is None else 1 + text.preferred,
            }
            for text in texts
        ]
        for task, texts in texts_of(entry, run_of(entry, seed), runs).items()
        if any(text.preferred is not None for text in texts)
    }
    if not found:
        raise ConfigError(
            f"{entry.objective.label} [{entry.id[:6]}] of {entry.suite} has no judged pairs of responses; expected an "
            "entry of a run with --set judge.name=NAME, or a file of annotations."
        )
    for task in tasks or ():
        if task not in found:
            raise UnknownNameError("task with judged pairs", task, list(found))
    return {task: rows for task, rows in found.items() if not tasks or task in tasks}
