"""From entries to the answers of their runs, which lie with the scores."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import ConfigError, DataError, UnknownNameError
from emobench.kinds.interface import LabelAnswers
from emobench.leaderboard.schema.entry import Entry
from emobench.pipeline.inspect.recorded_runs import Named, newest, read_json, score_stages
from emobench.registry import usable_kinds


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


def find_answers(entries: Sequence[Entry], runs: Path, tasks: Sequence[str]) -> tuple[list[FoundAnswers], Named]:
    """Return the answers of the runs of the newest entry whose files are in `runs`, in order, and that entry.

    `tasks` are those that are wanted, all if empty. Raises a UserError where there are none, or a run's files are not
    in `runs`.
    """
    known = {task for entry in entries for task in _answered(entry)}
    if not known:
        names = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in entries)
        kinds = " or ".join(_kinds())
        raise ConfigError(f"{names} has no task that is answered by labels; expected an entry of one of kind {kinds}.")
    for task in tasks:
        if task not in known:
            raise UnknownNameError("task with answers", task, known)
    meant = [entry for entry in entries if _answered(entry) & set(tasks or known)]
    named = newest(meant, lambda entry: _is_here(entry, runs))
    found = list(_of_entry(named.entry, runs))
    return [answers for answers in found if not tasks or answers.task in tasks], named


def pooled(found: Sequence[FoundAnswers]) -> dict[str, Any]:
    """Return one table of the answers of several runs to one task: their counts are sums over the runs."""
    return _kinds()[found[0].kind].pooled_table([one.table for one in found])


def worst(found: Sequence[FoundAnswers], count: int) -> list[tuple[FoundAnswers, dict[str, Any]]]:
    """Return the wrong answers of the largest margins, each with the run that gave it."""
    wrong = [(one, row) for one in found for row in one.table["examples"] if row["right"] != row["answer"]]
    return sorted(wrong, key=lambda pair: -pair[1]["margin"])[:count]


def _kinds() -> dict[str, LabelAnswers]:
    """Return the kinds of task that are answered by labels, by their names."""
    return {kind.name: kind.answers for kind in usable_kinds() if kind.answers is not None}


def _answered(entry: Entry) -> set[str]:
    """Return the tasks with the metrics of answers by labels."""
    names = [kind.METRICS for kind in _kinds().values()]
    return {task for task in entry.protocols if any(all(f"{task}/{n}" in entry.metrics for n in own) for own in names)}


def _is_here(entry: Entry, runs: Path) -> bool:
    try:
        return any(_table(*stage) for run in entry.runs for stage in score_stages(entry, run, runs))
    except DataError:
        return False


def _table(facts: Mapping[str, Any], folder: Path) -> Path | None:
    """Return the file of a task's answers, which lies with its scores; None where there is none."""
    kind = _kinds().get(facts["task"]["kind"])
    return folder / kind.TABLE if kind is not None and (folder / kind.TABLE).is_file() else None


def _of_entry(entry: Entry, runs: Path) -> Iterator[FoundAnswers]:
    for run in entry.runs:
        for facts, folder in score_stages(entry, run, runs):
            if (table := _table(facts, folder)) is not None:
                prompts, remarks = _prompts(entry, facts["task"], facts["subject"].get("training"), runs)
                yield FoundAnswers(
                    entry=entry.id,
                    suite=str(entry.suite),
                    model=entry.model.name,
                    objective=entry.objective.label,
                    seed=run.seed,
                    task=facts["task"]["name"],
                    kind=facts["task"]["kind"],
                    prompts=prompts,
                    remarks=remarks,
                    table=read_json(table, entry),
                )


def _prompts(entry: Entry, task: Mapping[str, Any], training: str | None, runs: Path) -> tuple[str, tuple[str, ...]]:
    """Return the command that shows a task's prompts, and what it lacks; `training` is the key of the model's."""
    remarks = [f"with the --data-dir and --set {task['kind']}.* of the run"]
    protocol, folder = entry.protocols[task["name"]].partition("@")[0], runs / "train" / (training or "") / "model"
    trained = training is not None and folder.is_dir()
    if training is not None and not trained:
        remarks.append(f"{folder} is not here, so that this is the model before its training")
    given = ["--protocol", protocol, "--model", str(folder) if trained else entry.model.name, "--runs", str(runs)]
    return shlex.join(["emobench", "prompts", task["name"], *given]), tuple(remarks)
