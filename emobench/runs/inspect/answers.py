"""From entries to the answers of their runs, which lie with the scores."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.kinds.views import LabelAnswers
from emobench.leaderboard.entry import Entry, Run
from emobench.leaderboard.run_files import Recorded, is_here, recorded_file, run_examples
from emobench.registry import kinds_with
from emobench.runs.inspect.recorded_runs import (
    Named,
    named_run,
    newest,
    read_json,
    recorded_task,
    score_stages,
    task_of_samples,
)
from emobench.runs.stages.stage import FACTS

CLOSE = 1e-9
"""Between a number that is made again and the recorded one, at most."""


@dataclass(frozen=True, kw_only=True)
class FoundAnswers:
    """The answers of one run to one task; `table` is as its kind of task writes it (`kinds.views.LabelAnswers`)."""

    entry: str
    suite: str
    model: str
    objective: str
    seed: int | None
    task: str
    kind: str
    prompts: str
    """The command that shows the task's prompts, without its --example."""
    remarks: tuple[str, ...]
    """What that command lacks."""
    table: dict[str, Any]


def find_answers(
    entries: Sequence[Entry], runs: Path, tasks: Sequence[str], boards: Sequence[Path] = ()
) -> tuple[list[FoundAnswers], Named]:
    """Return the answers of the runs of the newest entry whose files are here, in order, and that entry.

    They are in `runs`; for a run that is not, they are made again from the losses that `boards` ship. `tasks` are
    those that are wanted, all if empty. Raises a UserError where there are none, or a run's files are nowhere.
    """
    known = set().union(*map(answered_tasks, entries))
    if not known:
        raise ConfigError(f"{entries[0].objective.label} [{entries[0].id[:6]}] has no task that is answered by labels.")
    for task in tasks:
        if task not in known:
            raise UnknownNameError("task with answers", task, known)
    meant = [entry for entry in entries if answered_tasks(entry) & set(tasks or known)]
    named = newest(meant, lambda entry: _is_here(entry, runs, boards))
    answers = []
    for run in named.entry.runs:
        for task, training, table in _tables(named.entry, run, tasks, runs, boards):
            if tasks and task["name"] not in tasks:
                continue
            prompts, remarks = _prompts(named.entry, task, training, runs)
            answers.append(
                FoundAnswers(
                    **named_run(named.entry, run),
                    task=task["name"],
                    kind=task["kind"],
                    prompts=prompts,
                    remarks=remarks,
                    table=table,
                )
            )
    return answers, named


def pooled(answers: Sequence[FoundAnswers]) -> dict[str, Any]:
    """Return one table of the answers of several runs to one task: their counts are sums over the runs."""
    return kinds_with(LabelAnswers)[answers[0].kind].pooled_table([one.table for one in answers])


def worst(answers: Sequence[FoundAnswers], count: int) -> list[tuple[FoundAnswers, dict[str, Any]]]:
    """Return the wrong answers of the largest margins, each with the run that gave it."""
    wrong = []
    for one in answers:
        wrong += [(one, row) for row in one.table["examples"] if row["right"] != row["answer"]]
    return sorted(wrong, key=lambda pair: -pair[1]["margin"])[:count]


def answered_tasks(entry: Entry) -> set[str]:
    """Return the tasks with the metrics of answers by labels."""
    answered = set()
    for kind in kinds_with(LabelAnswers).values():
        for task in entry.protocols:
            if all(f"{task}/{metric}" in entry.metrics for metric in kind.METRICS):
                answered.add(task)
    return answered


def _is_here(entry: Entry, runs: Path, boards: Sequence[Path]) -> bool:
    try:
        for run in entry.runs:
            if not _is_packed(run, runs, boards) and not any(_scored_tables(entry, run, runs)):
                return False
    except DataError:
        return False
    return bool(entry.runs)


def _is_packed(run: Run, runs: Path, boards: Sequence[Path]) -> bool:
    """Return whether boards have losses of a run whose scores are not in `runs`."""
    scored = (runs / "examples" / run.key / FACTS).is_file()
    return not scored and any(is_here(file, runs, boards) for file in run.samples)


def _scored_tables(entry: Entry, run: Run, runs: Path) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield the facts of the scores of a run that have a table of answers, and the table's file."""
    kinds = kinds_with(LabelAnswers)
    for facts, folder in score_stages(entry, run, runs):
        kind = kinds.get(facts["task"]["kind"])
        if kind is not None and (folder / kind.TABLE).is_file():
            yield facts, folder / kind.TABLE


def _tables(
    entry: Entry, run: Run, tasks: Sequence[str], runs: Path, boards: Sequence[Path]
) -> Iterator[tuple[dict[str, Any], str | None, dict[str, Any]]]:
    """Yield the tasks of a run with the key of the training, empty if not known, and the table of answers.

    Raises DataError where losses on boards give other answers than were recorded.
    """
    if not _is_packed(run, runs, boards):
        for facts, path in _scored_tables(entry, run, runs):
            yield facts["task"], facts["subject"].get("training"), read_json(path, entry)
        return
    recorded = run_examples(run, runs, entry, boards)
    training = None if entry.untrained else ""
    if len(run.curves) == 1:  # of several trainings, it is not recorded which one is a task's
        training = Path(run.curves[0].path).parent.name
    answered = answered_tasks(entry)
    for place, file in enumerate(run.samples):
        name = task_of_samples(entry, run, place)
        if name not in answered or (tasks and name not in tasks):
            continue
        task = recorded_task(entry, name)
        if task is None:
            raise DataError(
                f"Task {name} has no protocol {entry.protocols[name]} here, which its answers are made by. Install the "
                "emobench that recorded it, or give the folder of its runs with --runs DIR."
            )
        kind = kinds_with(LabelAnswers)[task.kind]
        table = kind.table_of(task.protocol, recorded_file(file, runs, entry, boards))
        _require_recorded(table["examples"], name, entry, recorded)
        yield {"name": name, "kind": task.kind}, training, table


def _require_recorded(
    rows: Sequence[Mapping[str, Any]], task: str, entry: Entry, recorded: Mapping[str, Recorded]
) -> None:
    """Raise DataError where answers are not those whose accuracies and margins an entry recorded."""
    accuracies = recorded.get(f"{task}/accuracy", Recorded()).examples
    margins = recorded.get(f"{task}/margin", Recorded()).examples
    alike = accuracies.keys() == margins.keys() == {row["id"] for row in rows} and len(rows) == len(margins)
    for row in rows if alike else ():
        right = row["right"] == row["answer"]
        alike &= accuracies[row["id"]][0] == right and math.isclose(margins[row["id"]][0], row["margin"], abs_tol=CLOSE)
    if not alike:
        raise DataError(
            f"The losses of {task} on the board give other answers than entry {entry.id} recorded. Give the folder of "
            "its runs with --runs DIR, or install the emobench that recorded it."
        )


def _prompts(entry: Entry, task: Mapping[str, Any], training: str | None, runs: Path) -> tuple[str, tuple[str, ...]]:
    """Return the command that shows a task's prompts, and its remarks; `training` is None if nothing was trained."""
    remarks = [f"with the --data-dir and --set {task['kind']}.* of the run"]
    model = entry.model.name
    if training is not None:
        folder = runs / "train" / training / "model"
        if training and folder.is_dir():
            model = str(folder)
        else:
            remarks.append(f"{folder} is missing: the answers are those of the model before its training")
    protocol = entry.protocols[task["name"]].partition("@")[0]
    words = ["emobench", "prompts", task["name"], "--protocol", protocol, "--model", model, "--runs", str(runs)]
    return shlex.join(words), tuple(remarks)
