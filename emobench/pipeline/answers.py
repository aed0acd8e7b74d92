"""From entries to the answers of their runs, as they are beside the scores."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import ConfigError, DataError, UnknownNameError
from emobench.evaluation.icl.metrics import TABLE
from emobench.leaderboard.entry import Entry
from emobench.pipeline.stages import FACTS


@dataclass(frozen=True, kw_only=True)
class FoundAnswers:
    """The answers of one run to one task; `table` is what `evaluation.icl.metrics.answers_table` returns."""

    entry: str
    objective: str
    seed: int | None
    task: str
    table: dict[str, Any]

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        rows = self.table["examples"]
        return sum(row["right"] == row["answer"] for row in rows) / len(rows)

    def worst(self, count: int) -> list[dict[str, Any]]:
        """Return the wrong answers of the largest margins."""
        wrong = [row for row in self.table["examples"] if row["right"] != row["answer"]]
        return sorted(wrong, key=lambda row: -row["margin"])[:count]


def find_answers(entries: Sequence[Entry], runs: Path, tasks: Sequence[str]) -> list[FoundAnswers]:
    """Return the answers of each entry's runs, in order; `tasks` are those that are wanted, all if empty.

    Raises a UserError where there are none, or a run's files are not in `runs`.
    """
    found = [answers for entry in entries for answers in _of_entry(entry, runs)]
    if not found:
        names = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in entries)
        raise ConfigError(f"{names} has no task that is answered by labels; expected an entry of one of kind icl.")
    known = {answers.task for answers in found}
    for task in tasks:
        if task not in known:
            raise UnknownNameError("task with answers", task, known)
    return [answers for answers in found if not tasks or answers.task in tasks]


def _of_entry(entry: Entry, runs: Path) -> Iterator[FoundAnswers]:
    for run in entry.runs:
        for key in _read(runs / "examples" / run.key / FACTS, entry)["scores"]:
            folder = runs / "score" / key
            task = _read(folder / FACTS, entry)["task"]["name"]
            if (folder / TABLE).is_file():
                yield FoundAnswers(
                    entry=entry.id,
                    objective=entry.objective.label,
                    seed=run.seed,
                    task=task,
                    table=_read(folder / TABLE, entry),
                )


def _read(path: Path, entry: Entry) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise DataError(
            f"{path}: cannot be read, and the entry {entry.id} was recorded from it. Give the folder of its runs with "
            "--runs DIR, or run again."
        ) from None
