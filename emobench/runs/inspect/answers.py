"""From entries to the answers of their runs, which lie with the scores."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError
from emobench.kinds.views import LabelAnswers
from emobench.leaderboard.entry import Entry
from emobench.registry import kinds_with
from emobench.runs.inspect.recorded_runs import named_run, read_json, score_stages


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


def find_answers(entry: Entry, runs: Path, tasks: Sequence[str]) -> list[FoundAnswers]:
    """Return the answers of an entry's runs to `tasks`, all if empty, in order.

    Raises a UserError if there are none, or if a run's files are missing.
    """
    known = answered_tasks(entry)
    if not known:
        raise ConfigError(f"{entry.objective.label} [{entry.id[:6]}] has no task that is answered by labels.")
    for task in tasks:
        if task not in known:
            raise UnknownNameError("task with answers", task, known)
    kinds = kinds_with(LabelAnswers)
    answers = []
    for run in entry.runs:
        for facts, folder in score_stages(entry, run, runs):
            name, kind = facts["task"]["name"], facts["task"]["kind"]
            if name not in known or (tasks and name not in tasks):
                continue
            prompts, remarks = _prompts(entry, facts, runs)
            answer = FoundAnswers(
                **named_run(entry, run),
                task=name,
                kind=kind,
                prompts=prompts,
                remarks=remarks,
                table=read_json(folder / kinds[kind].TABLE, entry),
            )
            answers.append(answer)
    return answers


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


def _prompts(entry: Entry, facts: Mapping[str, Any], runs: Path) -> tuple[str, tuple[str, ...]]:
    """Return the command that shows the prompts of a score stage, and its remarks."""
    task, training = facts["task"], facts["subject"].get("training")
    remarks = [f"with the --data-dir and --set {task['kind']}.* of the run"]
    model = entry.model.name
    if training is not None:
        folder = runs / "train" / training / "model"
        if folder.is_dir():
            model = str(folder)
        else:
            remarks.append(f"{folder} is missing: the answers are those of the model before its training")
    protocol = entry.protocols[task["name"]].partition("@")[0]
    words = ["emobench", "prompts", task["name"], "--protocol", protocol, "--model", model, "--runs", str(runs)]
    return shlex.join(words), tuple(remarks)
