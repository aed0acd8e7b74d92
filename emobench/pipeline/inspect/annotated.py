"""From a judged entry to AlpacaEval's annotations: two responses to each instruction, and which one is preferred."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import ConfigError, DataError, UnknownNameError
from emobench.kinds.instruct.judged import JUDGE, JUDGEMENTS
from emobench.leaderboard.schema.entry import Entry
from emobench.pipeline.inspect.recorded_runs import read_json, read_sealed, score_stages, texts_of
from emobench.pipeline.inspect.samples import run_of


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """The judged pairs of one task, in the order of its instructions."""

    task: str
    rows: list[dict[str, Any]]
    """As the package alpaca-eval writes them; `preference` is the mean of both orders, and None without a verdict."""


def has_judgements(entry: Entry, runs: Path) -> bool:
    """Return whether a judge compared pairs of responses for an entry, as far as its files in `runs` tell."""
    try:
        folders = [folder for run in entry.runs for _, folder in score_stages(entry, run, runs)]
    except DataError:
        return False
    return any((folder / JUDGEMENTS).is_file() for folder in folders)


def annotations_of(
    entry: Entry, runs: Path, tasks: Sequence[str] | None = None, seed: int | None = None
) -> list[Annotated]:
    """Return the judged pairs of each task (only of `tasks`, if any), of the run of a seed, the first one by default.

    Raises ConfigError where no judge compared pairs of responses, DataError where files are gone.
    """
    run = run_of(entry, seed)
    found: dict[str, list[dict[str, Any]]] = {}
    for facts, folder in score_stages(entry, run, runs):
        if not (folder / JUDGEMENTS).is_file():
            continue
        told = [json.loads(line) for line in read_sealed(folder / JUDGEMENTS, entry).splitlines()]
        preferences = {one["id"]: one["preference"] for one in told if "preference" in one}
        if preferences:
            judge, task = read_json(folder / JUDGE, entry)["judge"], facts["task"]["name"]
            texts = [text for text in texts_of(entry, run, runs)[task] if text.prompt in preferences]
            found[task] = [
                {
                    "instruction": text.prefix,
                    "output_1": text.human,
                    "generator_1": "reference",
                    "output_2": text.generated,
                    "generator_2": entry.objective.label,
                    "preference": None if preferences[text.prompt] is None else 1 + preferences[text.prompt],
                    "annotator": judge,
                }
                for text in texts
            ]
    if not found:
        raise ConfigError(
            f"{entry.objective.label} [{entry.id[:6]}] of {entry.suite} has no judged pairs of responses; expected an "
            "entry of a run with --set judge.name=NAME, or a file of annotations."
        )
    for task in tasks or ():
        if task not in found:
            raise UnknownNameError("task with judged pairs", task, list(found))
    return [Annotated(task=task, rows=rows) for task, rows in found.items() if not tasks or task in tasks]
