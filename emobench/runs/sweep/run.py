"""A sweep: the cells of many requests, made by workers, each row recorded when it is complete.

RUNS/sweeps/<digest>.json     the rows of a sweep's file, with the keys of their stages; `sweep status` reads it
RUNS/sweeps/<digest>.failed   the rows that failed in the last run, a line of JSON each
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from emobench.core.errors import ConfigError, EmobenchError
from emobench.core.files import write_whole
from emobench.leaderboard.entry import Entry
from emobench.models.device import Place
from emobench.runs.execution.corpora import PackedCorpora
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.schedule import Job, jobs_of
from emobench.runs.execution.workers import Worker, Workers
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.run import Execution
from emobench.runs.stages.stage import Stages
from emobench.runs.sweep.plan_file import Sweep, differing_settings

FOLDER = "sweeps"
ROOM = "Free some space, or choose another folder with --runs DIR."
SHOWN = 5
"""Errors of a file that one message names."""


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One entry of a sweep: an objective over its seeds, with the model and the settings of its request."""

    request: int
    """The place of its request."""
    row: int
    """Its place in the plan of the request."""
    label: str
    model: str
    settings: str
    """The settings that differ among the requests of the sweep, as --set takes them."""
    stages: tuple[str, ...]
    """"<kind>/<key>" of each."""


@dataclass(frozen=True, kw_only=True)
class SweepResult:
    """What became of the rows of a sweep."""

    entries: tuple[Entry, ...]
    failed: tuple[tuple[SweepRow, str], ...]
    """Rows with the reason."""


def run_sweep(
    sweep: Sweep,
    places: Sequence[Place],
    reporter: Reporter,
    start: Callable[[Place, Path], Worker] | None = None,
) -> SweepResult:
    """Make all that is not finished, and record each row when it is complete; failures stop nothing else.

    `start` makes the worker of a place; None: a process on this machine.

    Raises ConfigError, before anything is made, for requests that cannot be planned.
    """
    rows, jobs = plan_sweep(sweep, reporter)
    runs = sweep.requests[0].runs
    entries, failed = [], []
    execution: tuple[int, Execution] | None = None
    with (
        Workers(places, jobs, runs.resolve(), reporter, start) as workers,
        reporter.work("sweep", "entries") as progress,
    ):
        for place, error in workers.completed([[stage.partition("/")[2] for stage in row.stages] for row in rows]):
            row = rows[place]
            try:
                if error is not None:
                    raise error
                if execution is None or execution[0] != row.request:
                    execution = row.request, Execution(make_plan(sweep.requests[row.request]), reporter)
                entries.append(execution[1].row(execution[1].plan.rows[row.row]))
            except EmobenchError as failure:
                reporter.note(f"{row.label}: failed, and is not recorded")
                failed.append((row, str(failure)))
                _write_failed(runs, sweep, failed)
            progress(len(entries) + len(failed), len(rows))
    _write_failed(runs, sweep, failed)
    return SweepResult(entries=tuple(entries), failed=tuple(failed))


def plan_sweep(sweep: Sweep, reporter: Reporter) -> tuple[list[SweepRow], list[Job]]:
    """Plan and check each request, and write down its stages and rows; what requests share is read once.

    Raises ConfigError, which names them, for requests that cannot be planned.
    """
    rows: list[SweepRow] = []
    jobs: list[Job] = []
    errors: list[str] = []
    known: Ingredients | None = None
    corpora = PackedCorpora(Stages(sweep.requests[0].runs), reporter)
    differing = differing_settings(sweep.requests)
    models = {one.model for one in sweep.requests}
    with reporter.work("plan", "requests") as progress:
        for place, request in enumerate(sweep.requests):
            try:
                plan = make_plan(request, known=known)
                known = plan.ingredients
                execution = Execution(plan, reporter, corpora=corpora)
                execution.check()
            except EmobenchError as error:
                errors.append(f"{request.command}: {error}")
                continue
            model = [plan.model.name] if len(models) > 1 else []
            jobs += jobs_of(plan, execution.stages, ", ".join([*model, *differing[place]]))
            for number, row in enumerate(plan.rows):
                stages = {f"{one.stage.kind}/{one.stage.key}": None for run in row.runs for one in run.stages()}
                found = SweepRow(
                    request=place,
                    row=number,
                    label=row.label,
                    model=plan.model.name,
                    settings=", ".join(differing[place]),
                    stages=tuple(stages),
                )
                rows.append(found)
            progress(place + 1, len(sweep.requests))
    if errors:
        more = f"\n... and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
        listed = "\n".join(errors[:SHOWN])
        raise ConfigError(f"{len(errors)} of {len(sweep.requests)} requests of the sweep cannot run:\n{listed}{more}")
    write_rows(sweep.requests[0].runs, sweep, rows)
    return rows, jobs


def digest_of(sweep: Sweep) -> str:
    """Return what names the files of a sweep: it is of the requests, however their file was written."""
    text = json.dumps([request.command for request in sweep.requests])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_rows(runs: Path, sweep: Sweep, rows: Iterable[SweepRow]) -> None:
    """Write the rows of a sweep with the keys of their stages, for `read_rows`."""
    path = runs / FOLDER / f"{digest_of(sweep)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps([vars(row) for row in rows], indent=1) + "\n", "The rows of a sweep", ROOM)


def read_rows(runs: Path, sweep: Sweep) -> list[SweepRow] | None:
    """Return the rows of a sweep that was started, None of another one."""
    path = runs / FOLDER / f"{digest_of(sweep)}.json"
    if not path.exists():
        return None
    return [SweepRow(**{**row, "stages": tuple(row["stages"])}) for row in json.loads(path.read_text("utf-8"))]


def _write_failed(runs: Path, sweep: Sweep, failed: Iterable[tuple[SweepRow, str]]) -> None:
    lines = [json.dumps({"request": row.request, "row": row.row, "reason": reason}) for row, reason in failed]
    path = runs / FOLDER / f"{digest_of(sweep)}.failed"
    write_whole(path, "".join(f"{line}\n" for line in lines), "The failures of a sweep", ROOM)


@dataclass(frozen=True, kw_only=True)
class RowStatus:
    """What is there of a row."""

    row: SweepRow
    made: int
    failed: str | None
    """Why it failed in the last run, if it did and is still not made."""

    @property
    def state(self) -> str:
        if self.made == len(self.row.stages):
            return "done"
        return "failed" if self.failed else "begun" if self.made else "to do"


def status_of(runs: Path, sweep: Sweep) -> list[RowStatus] | None:
    """Return the state of each row, from the names of the finished stages; None of a sweep that was not started."""
    rows = read_rows(runs, sweep)
    if rows is None:
        return None
    kinds = {stage.partition("/")[0] for row in rows for stage in row.stages}
    there = {f"{kind}/{path.name}" for kind in kinds if (runs / kind).is_dir() for path in (runs / kind).iterdir()}
    path = runs / FOLDER / f"{digest_of(sweep)}.failed"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    reasons = {(one["request"], one["row"]): one["reason"] for one in map(json.loads, lines)}
    return [
        RowStatus(row=row, made=sum(stage in there for stage in row.stages), failed=reasons.get((row.request, row.row)))
        for row in rows
    ]
