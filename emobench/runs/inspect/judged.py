"""Judges between the responses of entries: a round robin of their models, and AlpacaEval's annotations of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, UnknownNameError, UserError
from emobench.kinds.views import JudgedPairs
from emobench.leaderboard.entry import Entry
from emobench.registry import kinds_with
from emobench.runs.execution.reporter import Reporter
from emobench.runs.inspect.recorded_runs import texts_of
from emobench.runs.inspect.samples import SideBySide, run_of, side_by_side
from emobench.runs.stages.stage import Stage, Stages
from emobench.runs.stages.storage import require_writable

ALL = 10**12


def judged_pairs() -> JudgedPairs:
    """Return the view of the kind of task whose responses judges compare. Raises ConfigError if none is installed."""
    views = kinds_with(JudgedPairs)
    if not views:
        raise ConfigError("No kind of task here has responses that a judge compares; see `emobench kinds list`.")
    return next(iter(views.values()))


@dataclass(frozen=True, kw_only=True)
class RoundRobin:
    """Entries whose responses a judge compares, on each task that all have responses of (only `tasks`, if any)."""

    entries: Sequence[Entry]
    rule: Any
    """See `JudgedPairs.rule_of`."""
    runs: Path
    tasks: Sequence[str] = ()
    seed: int | None = None
    limit: int | None = None
    offline: bool = False

    def judge(self, reporter: Reporter, device: str = "cpu") -> Sequence[Any]:
        """Return the outcome on each task.

        Raises a UserError for what cannot be judged, MetricError where more than 5 % of the requests have no verdict.
        """
        tables = self._tables()
        require_writable(self.runs, "--runs")
        stages = Stages(self.runs, note=reporter.note)

        def keep(kind: str, facts: Mapping[str, Any], work: Any) -> Path:
            return stages.make(Stage(kind, facts), work, continues=True)

        return judged_pairs().judged(self.rule, tables, keep, reporter.work, device=device, offline=self.offline)

    def expected(self) -> Sequence[Any]:
        """Return what `judge` would ask, task by task; it raises the same for what cannot be judged."""
        stages = Stages(self.runs)
        return judged_pairs().expected(
            self.rule, self._tables(), lambda kind, facts: stages.folder(Stage(kind, facts)), self.offline
        )

    def _tables(self) -> Sequence[SideBySide]:
        if len(self.entries) < 2:
            raise ConfigError(
                "A judge compares two entries or more; name another one, see `emobench leaderboard show`."
            )
        return side_by_side(self.entries, self.runs, self.tasks, seed=self.seed, count=self.limit or ALL)


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
