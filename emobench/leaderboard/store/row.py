"""The light facts of an entry, with which boards are listed and filtered before any entry is read whole."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from emobench.config import PRETRAINED, build
from emobench.errors import UserError
from emobench.leaderboard.schema.comparable import comparison_key
from emobench.leaderboard.schema.entry import Entry, Model, Provenance, Run, SuiteVersion, TrainedObjective

NO_ROW = (UserError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What unchecked data raises where it holds no row."""


class Row(NamedTuple):
    """Light facts of an entry; its numbers are in its file (`Leaderboard.read`)."""

    id: str
    path: Path
    kind: str
    suite: str
    suite_version: int
    model: str
    objective: str
    """The objective's name, such as `tailr`."""
    label: str
    """The objective with its parameters, as `--objective` takes it: `tailr(gamma=0.2)`."""
    created: str
    comparison_key: str
    """Trained entries with the same one are ranked together."""
    metrics: tuple[str, ...]
    """<task>/<metric> of all that was measured, without what is missing."""
    supersedes: str | None
    runs: tuple[str, ...]
    """The runs' keys."""

    @property
    def untrained(self) -> bool:
        return self.objective == PRETRAINED

    def facts(self) -> list[Any]:
        """Return all fields but the path, as plain data for the index."""
        return [self.id, *self[2:]]


def row_of(entry: Entry, path: Path) -> Row:
    """Return the row of an entry that was read from `path`."""
    return Row(
        id=entry.id,
        path=path,
        kind=entry.kind,
        suite=entry.suite.name,
        suite_version=entry.suite.version,
        model=entry.model.name,
        objective=entry.objective.name,
        label=entry.objective.label,
        created=entry.provenance.created,
        comparison_key=comparison_key(entry),
        metrics=tuple(entry.metrics),
        supersedes=entry.supersedes,
        runs=tuple(run.key for run in entry.runs),
    )


def row_of_plain(plain: Mapping[str, Any], root: Path, file: str) -> Row:
    """Return the row of plain data of the current schema in "folder/name" of a board; only a row's facts are checked.

    Raises one of `NO_ROW` where the data hold none.
    """
    entry = object.__new__(Entry)  # without the checks of all the rest, which take as long as reading
    parts = {
        "suite": SuiteVersion(**plain["suite"]),
        "model": build(Model, plain["model"], file),
        "objective": TrainedObjective(**plain["objective"]),
        "provenance": Provenance(**plain["provenance"]),
        "runs": [Run(seed=None, key=run["key"]) for run in plain["runs"]],
    }
    entry.__dict__.update({**plain, **parts})
    return row_of_facts(root, file, row_of(entry, root).facts())


def row_of_facts(root: Path, file: str, facts: Any) -> Row:
    """Return a row; raises one of `NO_ROW` where its facts have other types or another file's name."""
    identity, kind, suite, version, model, objective, label, created, key, metrics, supersedes, runs = facts
    texts = (identity, kind, suite, model, objective, label, key, *runs)
    right = {*map(type, texts)} == {str} and type(version) is int and type(supersedes) in (str, type(None))
    if not right or type(runs) not in (list, tuple) or file != f"{suite}-v{version}/{identity}.json":
        raise ValueError
    datetime.fromisoformat(created)
    path, names = Path(f"{root}/{file}"), _metric_names(tuple(metrics))
    named = (identity, path, kind, suite, version, model, objective, label, created, key)
    return Row(*named, names, supersedes, tuple(runs))


@functools.cache
def _metric_names(metrics: tuple[Any, ...]) -> tuple[str, ...]:
    """Check and return metrics' names, which thousands of entries share; raises one of `NO_ROW`."""
    if not all(task and name for task, _, name in (metric.partition("/") for metric in metrics)):
        raise ValueError
    return metrics
