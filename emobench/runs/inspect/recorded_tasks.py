"""From an entry to its tasks with their rules, where the stages that tell them are not at hand."""

from __future__ import annotations

from emobench.core.errors import DataError, UserError
from emobench.leaderboard.entry import Entry, Run
from emobench.registry import find_task, task_names
from emobench.runs.planning.resolve import nested_rules
from emobench.tasks.spec import Task, short_name


def task_of_samples(entry: Entry, run: Run, place: int) -> str:
    """Return the name of the task whose samples a run names at a place: both are in the order of the tasks.

    Raises DataError where a task has no file of samples, or several.
    """
    names = list(entry.protocols)
    if len(run.samples) != len(names):
        raise DataError(
            f"The run {run.key} of entry {entry.id} names {len(run.samples)} files of samples for {len(names)} tasks; "
            "its folder alone tells which is whose. Give it with --runs DIR."
        )
    return names[place]


def recorded_task(entry: Entry, name: str) -> Task | None:
    """Return the task of an entry with the rules of its protocol's id; None where no task here has them."""
    protocol = entry.protocols[name].partition("@")[0]
    changes = nested_rules(entry.changes.get(name, {}), {})
    for known in task_names():  # tasks of several kinds may have one name
        if short_name(known) != name:
            continue
        try:
            task = find_task(known, protocol=protocol, overrides=changes)
        except UserError:
            continue
        if task.protocol_id == entry.protocols[name]:
            return task
    return None
