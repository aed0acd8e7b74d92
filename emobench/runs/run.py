"""The whole job: plan, train, evaluate, record."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from emobench.core.errors import ConfigError, EmobenchError
from emobench.leaderboard.entry import Entry
from emobench.models.device import Place
from emobench.runs.execution.corpora import PackedCorpora
from emobench.runs.execution.evaluate import Evaluation
from emobench.runs.execution.executors import Executor, InProcess
from emobench.runs.execution.group import join_group
from emobench.runs.execution.launch import Launch
from emobench.runs.execution.prerequisites import require_generated, require_trained
from emobench.runs.execution.record import record_row
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.execution.schedule import jobs_of
from emobench.runs.execution.tracking import say_where, track_metrics
from emobench.runs.execution.workers import Workers
from emobench.runs.planning.make_plan import make_plan
from emobench.runs.planning.plan import Plan, PlannedRow, PlannedRun, PlannedStage
from emobench.runs.planning.planned import PlannedTraining
from emobench.runs.planning.prospects import prospects
from emobench.runs.planning.rebuild import Description, describe, find_planned, find_stage, require_trusted
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.storage import require_writable

SCORED = ("score", "examples", "features", "perplexity")
"""Kinds of stage that hold scores, and the human texts' vectors that they are made of."""


def run_plan(
    plan: Plan, reporter: Reporter | None = None, places: Sequence[Place] = (), launch: Launch | None = None
) -> list[Entry]:
    """Do all that is not finished, row by row, and return the rows' entries. A row is recorded when it is complete.

    With `places`, a process on each makes stages, several at once. There, a row that fails does not stop the others;
    the first error is raised at the end. With `launch`, its processes make each training together.
    """
    worker = Execution(plan, reporter, launch=launch)
    worker.check()
    with worker.ahead(places):
        entries = worker.rows()
    say_where(plan, worker.stages, worker.reporter)
    return entries


def evaluate_plan(
    plan: Plan, reporter: Reporter | None = None, places: Sequence[Place] = (), *, rescore: bool = False
) -> list[Entry]:
    """Do what `run_plan` does, and train nothing; with `rescore`, generate nothing either, and score all anew.

    Raises ConfigError for a training, and with `rescore` for a generation, that is not there.
    """
    worker = Execution(plan, reporter, anew=SCORED if rescore else ())
    require_trained(plan, worker.stages)
    if rescore:
        require_generated(plan, worker.stages)
    worker.check()
    with worker.ahead(places):
        return worker.rows()


def score_plan(plan: Plan, reporter: Reporter | None = None) -> list[list[list[Evaluation]]]:
    """Do all that is not finished and record nothing; return the evaluations of each row's runs."""
    worker = Execution(plan, reporter)
    worker.check()
    return [[worker.evaluations(run) for run in row.runs] for row in plan.rows]


def train_plan(
    plan: Plan, reporter: Reporter | None = None, places: Sequence[Place] = (), launch: Launch | None = None
) -> list[tuple[PlannedTraining, Path]]:
    """Train only; return each training with the folder of its model."""
    worker = Execution(plan, reporter, launch=launch)
    worker.check()
    trainings = plan.trainings()
    with worker.ahead(places):
        for _, error in worker.completed([[planned.stage.key] for planned in trainings]):
            if error is not None:
                raise error
        worker.executor.execute(PlannedStage(planned.stage, planned) for planned in trainings)
    say_where(plan, worker.stages, worker.reporter)
    return [(planned, worker.stages.folder(planned.stage) / "model") for planned in trainings]


def run_stage(
    runs: Path,
    key: str,
    reporter: Reporter | None = None,
    device: str | None = None,
    *,
    objectives: Sequence[str] = (),
    trust_remote_code: bool = False,
) -> Path:
    """Make one stage from its description alone, with what it needs, and return its folder; see `planning.rebuild`.

    Code that the description names is run only if the user names it, too: `objectives` of files, and
    `trust_remote_code`. Raises ConfigError for a stage that was not planned, that would have another key here, or that
    runs code which the user did not name.
    """
    _, description = find_stage(runs, key)
    if description is not None:
        require_trusted(key, description, objectives, trusted=trust_remote_code)
    return StageMaker(runs, reporter, device).make(key)


class StageMaker:
    """Makes planned stages by their keys. What consecutive ones share is planned and loaded once."""

    def __init__(self, runs: Path, reporter: Reporter | None = None, device: str | None = None) -> None:
        self._runs, self._reporter, self._device = runs, reporter, device
        self._stages = Stages(runs.resolve())
        self._last: tuple[Request, Path, Execution] | None = None

    def make(self, key: str) -> Path:
        """Make a stage with what it needs, and return its folder; see `run_stage`."""
        stage, description = find_stage(self._runs, key)
        if self._stages.is_finished(stage) and self._stages.damage(stage, full=True) is None:
            return self._stages.folder(stage)
        if description is None:
            raise ConfigError(
                f"{self._stages.folder(stage)} was altered, and nothing says how to make it again; give the command of "
                "its run."
            )
        with self._planned(description) as (worker, planned):
            worker.executor.execute([planned])
        return worker.stages.folder(planned.stage)

    def take_part(self, key: str) -> None:
        """Be one of the processes that make a training together; another one has planned and locked it."""
        _, description = find_stage(self._runs, key)
        assert description is not None
        join_group(description.request.device)
        with self._planned(description) as (worker, planned):
            assert isinstance(planned.work, PlannedTraining)
            worker.executor.take_part(planned.work)

    @contextlib.contextmanager
    def _planned(self, description: Description) -> Iterator[tuple[Execution, PlannedStage]]:
        """Plan a described stage again, and work in the folder of its relative paths."""
        folder = description.folder
        with contextlib.chdir(folder) if folder.is_dir() else contextlib.nullcontext():
            worker = self._worker(description)
            yield worker, find_planned(worker.plan.stages(), description)

    def _worker(self, description: Description) -> Execution:
        request = replace(description.request, device=self._device or description.request.device)
        if self._last is None or self._last[:2] != (request, description.folder):
            worker = Execution(make_plan(request), self._reporter)
            worker.executor.execute(worker.plan.base_stages())
            self._last = (request, description.folder, worker)
        return self._last[2]


def keys_of(row: PlannedRow) -> list[str]:
    """Return the keys of a row's stages."""
    return [planned.stage.key for run in row.runs for planned in run.stages()]


class Execution:
    """A plan that is executed: its stages are made, and its rows recorded."""

    def __init__(
        self,
        plan: Plan,
        reporter: Reporter | None,
        anew: Collection[str] = (),
        launch: Launch | None = None,
        corpora: PackedCorpora | None = None,
    ) -> None:
        self.plan = plan
        self.reporter = reporter or Silent()
        self.stages = Stages(plan.request.runs, anew, self.reporter.note)
        self.executor: Executor = InProcess(plan, self.stages, self.reporter, launch, corpora)
        self._processes = 1 if launch is None else launch.size
        self._workers: Workers | None = None

    def check(self) -> None:
        """Check folders and data, and write down what will be made."""
        request = self.plan.request
        for recipe in self.plan.recipes:
            recipe.micro_batch(self._processes)
        for line in (*self.plan.warnings(), *(prospects(self.plan).lines() if self.plan.request.suite else ())):
            self.reporter.note(line)
        require_writable(self.stages.root, "--runs")
        if request.suite is not None:  # an entry will be recorded
            require_writable(request.leaderboard, "--leaderboard")
        describe(self.plan.base_stages(), request, self.stages)
        self.executor.prepare()
        describe(self.plan.stages(), request, self.stages)

    @contextlib.contextmanager
    def ahead(self, places: Sequence[Place]) -> Iterator[None]:
        """Let workers on several places make what is not finished, if there are any."""
        if not places:
            yield
            return
        jobs = list(jobs_of(self.plan, self.stages))
        with Workers(places, jobs, self.stages.root, self.reporter) as self._workers:
            yield

    def completed(self, wanted: Sequence[Iterable[str]]) -> Iterator[tuple[int, EmobenchError | None]]:
        """Yield the place of each group of stages when the workers have made it, with what failed; see `Workers`."""
        if self._workers is None:
            yield from ((place, None) for place in range(len(wanted)))
        else:
            yield from self._workers.completed(wanted)

    def rows(self) -> list[Entry]:
        """Return the entry of each row, after making what is not finished. Rows are recorded as they are complete."""
        rows, entries, failed = self.plan.rows, {}, []
        for place, error in self.completed([keys_of(row) for row in rows]):
            if error is None:
                entries[place] = self.row(rows[place])
            else:
                self.reporter.note(f"{rows[place].label}: failed, and is not recorded")
                failed.append(error)
        if failed:
            raise failed[0]
        return [entries[place] for place in range(len(rows))]

    def row(self, row: PlannedRow) -> Entry:
        """Return a row's entry, after making what is not finished."""
        evaluations = []
        for run in row.runs:
            if not all(self.stages.is_finished(planned.scores) for planned in run.tasks()):
                self.reporter.note(f"{row.label}, seed {run.seed}")
            evaluations.append(self.evaluations(run))
        entry = record_row(self.plan, row, evaluations, self.stages)
        track_metrics(self.plan, row, evaluations, self.stages, self.reporter)
        return entry

    def evaluations(self, run: PlannedRun) -> list[Evaluation]:
        """Return the evaluations of a run's tasks, after training and evaluating what is not finished."""
        # A generation is made with its scores, and read only for these.
        self.executor.execute(planned for planned in run.stages() if planned.stage.kind != "generate")
        return [Evaluation(self.stages.folder(planned.scores), planned.scores.key) for planned in run.tasks()]
