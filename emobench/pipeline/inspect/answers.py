"""From entries to the answers of their runs, as they are beside the scores."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.errors import ConfigError, DataError, UnknownNameError
from emobench.kinds.interface import LabelAnswers
from emobench.leaderboard.schema.entry import Entry, Run
from emobench.leaderboard.schema.private_paths import FOLDER
from emobench.pipeline.execution.record import COMMAND
from emobench.pipeline.inspect.recorded_runs import Named, newest, read_json, score_stages
from emobench.reading import read_text
from emobench.registry import usable_kinds
from emobench.seals import find_damage

VALUES = ("--data-dir", "--limit", "--set")
"""Options of a run that decide its prompts; of `--set` those of the kind of task."""
FLAGS = ("--offline", "--trust-remote-code")


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
    """The command that shows the task's prompts as this run scored them, without its --example."""
    remarks: tuple[str, ...]
    """What that command lacks."""
    table: dict[str, Any]


def find_answers(entries: Sequence[Entry], runs: Path, tasks: Sequence[str]) -> tuple[list[FoundAnswers], Named]:
    """Return the answers of the runs of the newest entry whose files are at hand, in order, and that entry.

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
    named = newest(meant, lambda entry: _at_hand(entry, runs))
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


def _at_hand(entry: Entry, runs: Path) -> bool:
    try:
        return any(_table(*stage) for run in entry.runs for stage in score_stages(entry, run, runs))
    except DataError:
        return False


def _table(facts: Mapping[str, Any], folder: Path) -> Path | None:
    """Return the file of a task's answers beside its scores, None where there is none."""
    kind = _kinds().get(facts["task"]["kind"])
    return folder / kind.TABLE if kind is not None and (folder / kind.TABLE).is_file() else None


def _of_entry(entry: Entry, runs: Path) -> Iterator[FoundAnswers]:
    for run in entry.runs:
        for facts, folder in score_stages(entry, run, runs):
            if (table := _table(facts, folder)) is not None:
                words = _words(_command(entry, run, runs))
                prompts, remarks = _prompts(entry, words, facts["task"], facts["subject"].get("training"), runs)
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


def _command(entry: Entry, run: Run, runs: Path) -> str:
    """Return the command that made a run: as it was given where its results are, else as its entry publishes it."""
    with suppress(OSError, ValueError):
        if run.examples is not None:
            file = (runs / run.examples.path).with_name(COMMAND)
            if find_damage(file.parent, full=True, only=COMMAND) is None:
                return read_text(file).strip()
    return entry.source.command or ""


def _prompts(
    entry: Entry, words: list[tuple[str, str]] | None, task: Mapping[str, Any], training: str | None, runs: Path
) -> tuple[str, tuple[str, ...]]:
    """Return the command that shows a task's prompts, and what it lacks; `training` is the key of the model's."""
    remarks = []
    given = ["--protocol", entry.protocols[task["name"]].partition("@")[0]]
    folder = runs / "train" / (training or "") / "model"
    if training is not None and folder.is_dir():
        given += ["--model", str(folder)]
    else:
        given += ["--model", next((value for name, value in words or () if name == "--model"), entry.model.name)]
        if training is not None:
            remarks.append(f"{folder} is not here, so that this is the model before its training")
    if words is None:
        remarks.append(f"with the --data-dir and --set {task['kind']}.* of the run")
    if ("--data-dir", FOLDER) in (words or ()):
        remarks.append(f"with the run's own folder in the place of {FOLDER}")
    decides = {**dict.fromkeys(VALUES, ""), "--set": f"{task['kind']}."}
    kept = [(n, v) for n, v in words or () if n in FLAGS or (n in VALUES and v.startswith(decides[n]))]
    given += [word for name, value in kept for word in ((name,) if name in FLAGS else (name, value))]
    return shlex.join(["emobench", "prompts", task["name"], *given, "--runs", str(runs)]), tuple(remarks)


def _words(command: str) -> list[tuple[str, str]] | None:
    """Return the options of the command that made an entry, with their values; None where it is not known."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if words[1:2] not in (["run"], ["evaluate"]):
        return None
    found, rest = [], iter(words[2:])
    for word in rest:
        name, equals, value = word.partition("=")
        wanted = name == "--model" or name in VALUES
        found.append((name, next(rest, "") if wanted and not equals else value))
    return found
