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
from emobench.leaderboard.run_files import Recorded, is_here, read_examples, recorded_file
from emobench.registry import kinds_with
from emobench.runs.inspect.recorded_runs import Named, newest, read_json, score_stages
from emobench.runs.inspect.recorded_tasks import recorded_task, task_of_samples
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
    known = {task for entry in entries for task in answered_tasks(entry)}
    if not known:
        names = ", ".join(f"{entry.objective.label} [{entry.id[:6]}]" for entry in entries)
        kinds = " or ".join(_kinds())
        raise ConfigError(f"{names} has no task that is answered by labels; expected an entry of one of kind {kinds}.")
    for task in tasks:
        if task not in known:
            raise UnknownNameError("task with answers", task, known)
    meant = [entry for entry in entries if answered_tasks(entry) & set(tasks or known)]
    named = newest(meant, lambda entry: _is_here(entry, runs, boards))
    found = list(_of_entry(named.entry, set(tasks or known), runs, boards))
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
    return kinds_with(LabelAnswers)


def answered_tasks(entry: Entry) -> set[str]:
    """Return the tasks with the metrics of answers by labels."""
    names = [kind.METRICS for kind in _kinds().values()]
    return {task for task in entry.protocols if any(all(f"{task}/{n}" in entry.metrics for n in own) for own in names)}


def _is_here(entry: Entry, runs: Path, boards: Sequence[Path]) -> bool:
    if entry.runs and all(_is_packed(run, runs, boards) for run in entry.runs):
        return True
    try:
        return any(_table(*stage) for run in entry.runs for stage in score_stages(entry, run, runs))
    except DataError:
        return False


def _is_packed(run: Run, runs: Path, boards: Sequence[Path]) -> bool:
    """Return whether boards have losses of a run whose scores are not in `runs`."""
    scored = (runs / "examples" / run.key / FACTS).is_file()
    return not scored and any(is_here(file, runs, boards) for file in run.samples)


def _table(facts: Mapping[str, Any], folder: Path) -> Path | None:
    """Return the file of a task's answers, which lies with its scores; None where there is none."""
    kind = _kinds().get(facts["task"]["kind"])
    return folder / kind.TABLE if kind is not None and (folder / kind.TABLE).is_file() else None


def _of_entry(entry: Entry, wanted: set[str], runs: Path, boards: Sequence[Path]) -> Iterator[FoundAnswers]:
    for run in entry.runs:
        packed = _is_packed(run, runs, boards)
        of_run = _packed_tables(entry, run, wanted, runs, boards) if packed else _tables(entry, run, runs)
        for task, training, table in of_run:
            prompts, remarks = _prompts(entry, task, training, runs)
            yield FoundAnswers(
                entry=entry.id,
                suite=str(entry.suite),
                model=entry.model.name,
                objective=entry.objective.label,
                seed=run.seed,
                task=task["name"],
                kind=task["kind"],
                prompts=prompts,
                remarks=remarks,
                table=table,
            )


def _tables(entry: Entry, run: Run, runs: Path) -> Iterator[tuple[dict[str, Any], str | None, dict[str, Any]]]:
    """Yield the tasks of a run with the key of the training and the table of answers, as they were scored."""
    for facts, folder in score_stages(entry, run, runs):
        table = _table(facts, folder)
        if table is not None:
            yield facts["task"], facts["subject"].get("training"), read_json(table, entry)


def _packed_tables(
    entry: Entry, run: Run, wanted: set[str], runs: Path, boards: Sequence[Path]
) -> Iterator[tuple[dict[str, Any], str | None, dict[str, Any]]]:
    """Yield the same of a run whose losses are on boards. Raises DataError where they give other answers."""
    if run.examples is None:
        raise DataError(f"The run {run.key} of entry {entry.id} recorded no per-example results.")
    recorded = read_examples(recorded_file(run.examples, runs, entry, boards))
    training = None if entry.untrained else ""
    if len(run.curves) == 1:  # of several trainings, it is not recorded which one is a task's
        training = Path(run.curves[0].path).parent.name
    answered = answered_tasks(entry) & wanted
    for place, file in enumerate(run.samples):
        name = task_of_samples(entry, run, place)
        if name not in answered:
            continue
        task = recorded_task(entry, name)
        answers = None if task is None else _kinds().get(task.kind)
        if task is None or answers is None:
            raise DataError(
                f"Task {name} has no protocol {entry.protocols[name]} here, which its answers are made by. Install the "
                "emobench that recorded it, or give the folder of its runs with --runs DIR."
            )
        table = answers.table_of(task.protocol, recorded_file(file, runs, entry, boards))
        _require_recorded(table, name, entry, recorded)
        yield {"name": name, "kind": task.kind}, training, table


def _require_recorded(table: Mapping[str, Any], task: str, entry: Entry, recorded: Mapping[str, Recorded]) -> None:
    """Raise DataError where answers are not those whose accuracies and margins an entry recorded."""
    rows = table["examples"]
    made = {
        "accuracy": {row["id"]: float(row["right"] == row["answer"]) for row in rows},
        "margin": {row["id"]: row["margin"] for row in rows},
    }
    for name, values in made.items():
        known = recorded.get(f"{task}/{name}", Recorded()).examples
        alike = known.keys() == values.keys() and len(values) == len(rows)
        if not alike or any(not math.isclose(known[one][0], value, abs_tol=CLOSE) for one, value in values.items()):
            raise DataError(
                f"The losses of {task} on the board give another {name} than entry {entry.id} recorded. Give the "
                "folder of its runs with --runs DIR, or install the emobench that recorded it."
            )


def _prompts(entry: Entry, task: Mapping[str, Any], training: str | None, runs: Path) -> tuple[str, tuple[str, ...]]:
    """Return the command that shows a task's prompts, and what it lacks; `training` is the key of the model's.

    None: nothing was trained. Empty: not known.
    """
    remarks = [f"with the --data-dir and --set {task['kind']}.* of the run"]
    protocol, folder = entry.protocols[task["name"]].partition("@")[0], runs / "train" / (training or "") / "model"
    trained = bool(training) and folder.is_dir()
    if training is not None and not trained:
        place = folder if training else "the trained model"
        remarks.append(f"{place} is not here, so that this is the model before its training")
    given = ["--protocol", protocol, "--model", str(folder) if trained else entry.model.name, "--runs", str(runs)]
    return shlex.join(["emobench", "prompts", task["name"], *given]), tuple(remarks)
