"""The whole job: plan, train, evaluate, record."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from emobench.errors import ConfigError
from emobench.leaderboard.schema.entry import Entry
from emobench.pipeline.execution.evaluate import Evaluation
from emobench.pipeline.execution.executors import Executor, InProcess
from emobench.pipeline.execution.prerequisites import require_generated, require_trained
from emobench.pipeline.execution.record import record_row
from emobench.pipeline.execution.reporter import Reporter, Silent
from emobench.pipeline.execution.tracking import finished_trainings, say_where, track_metrics
from emobench.pipeline.planning.jobs import Job, base_jobs, jobs_of, plan_jobs
from emobench.pipeline.planning.make_plan import make_plan
from emobench.pipeline.planning.plan import Plan, PlannedRun
from emobench.pipeline.planning.planned import PlannedTraining
from emobench.pipeline.planning.rebuild import describe, find_job, find_stage
from emobench.pipeline.stages.stage import Stages
from emobench.pipeline.stages.storage import require_writable

SCORED = ("score", "examples", "features", "perplexity")
"""Kinds of stage that hold scores, and the human texts' vectors that they are made of."""


def run_plan(plan: Plan, reporter: Reporter | None = None) -> list[Entry]:
    """Do all that is not finished, row by row, and return the rows' entries. A row is recorded when it is complete."""
    worker = _Worker(plan, reporter or Silent())
    worker.check()
    entries = [worker.row(index) for index in range(len(plan.rows))]
    say_where(plan, worker.reused, worker.stages, worker.reporter, metrics=True)
    return entries


def evaluate_plan(plan: Plan, reporter: Reporter | None = None, *, rescore: bool = False) -> list[Entry]:
    """Do what `run_plan` does, and train nothing; with `rescore`, generate nothing either, and score all anew.

    Raises ConfigError for a training, and with `rescore` for a generation, that is not there.
    """
    worker = _Worker(plan, reporter or Silent(), anew=SCORED if rescore else ())
    require_trained(plan, worker.stages)
    if rescore:
        require_generated(plan, worker.stages)
    worker.check()
    return [worker.row(index) for index in range(len(plan.rows))]


def score_plan(plan: Plan, reporter: Reporter | None = None) -> list[list[list[Evaluation]]]:
    """Do all that is not finished and record nothing; return the evaluations of each row's runs."""
    worker = _Worker(plan, reporter or Silent())
    worker.check()
    return [[worker.evaluations(run) for run in row.runs] for row in plan.rows]


def train_plan(plan: Plan, reporter: Reporter | None = None) -> list[tuple[PlannedTraining, Path]]:
    """Train only; return each training with the folder of its model."""
    worker = _Worker(plan, reporter or Silent())
    worker.check()
    trainings = list(plan.trainings())
    worker.executor.execute(Job(planned.stage, planned) for planned in trainings)
    done = [(planned, worker.stages.folder(planned.stage) / "model") for planned in trainings]
    say_where(plan, worker.reused, worker.stages, worker.reporter, metrics=False)
    return done


def run_stage(runs: Path, key: str, reporter: Reporter | None = None, device: str | None = None) -> Path:
    """Make one stage from its description alone, with what it needs, and return its folder; see `planning.rebuild`.

    Raises ConfigError for a stage that nobody planned, or that would have another key here.
    """
    stage, description = find_stage(runs, key)
    stages = Stages(runs.resolve())
    if stages.is_finished(stage) and stages.damage(stage, full=True) is None:
        return stages.folder(stage)
    if description is None:
        raise ConfigError(
            f"{stages.folder(stage)} was altered, and nothing says how to make it again; give the command of its run."
        )
    with contextlib.chdir(description.folder) if description.folder.is_dir() else contextlib.nullcontext():
        request = replace(description.request, device=device or description.request.device)
        worker = _Worker(make_plan(request), reporter or Silent())
        worker.executor.execute(base_jobs(worker.plan))
        job = find_job(plan_jobs(worker.plan), description)
        worker.executor.execute([job])
    return worker.stages.folder(job.stage)


class _Worker:
    def __init__(self, plan: Plan, reporter: Reporter, anew: Collection[str] = ()) -> None:
        self.plan = plan
        self.reporter = reporter
        self.stages = Stages(plan.request.runs, anew, reporter.note)
        self.reused: frozenset[str] = frozenset()
        self.executor: Executor = InProcess(plan, self.stages, reporter)

    def check(self) -> None:
        """Check folders and data, and write down what will be made."""
        require_writable(self.stages.root, "--runs")
        if self.plan.request.suite is not None:  # an entry will be recorded
            require_writable(self.plan.request.leaderboard, "--leaderboard")
        describe(base_jobs(self.plan), self.plan.request, self.stages)
        self.executor.prepare()
        describe(plan_jobs(self.plan), self.plan.request, self.stages)
        self.reused = finished_trainings(self.plan, self.stages)

    def row(self, index: int) -> Entry:
        row = self.plan.rows[index]
        found = []
        for run in row.runs:
            if not all(self.stages.is_finished(planned.scores) for _, tasks in run.parts for planned in tasks):
                self.reporter.note(f"{row.label}, seed {run.seed}")
            found.append(self.evaluations(run))
        entry = record_row(self.plan, row, found, self.stages)
        track_metrics(self.plan, row, found, self.stages, self.reporter)
        return entry

    def evaluations(self, run: PlannedRun) -> list[Evaluation]:
        """Return the evaluations of a run's tasks, after training and evaluating what is not finished."""
        # A generation is made with its scores, and read only for these.
        self.executor.execute(job for job in jobs_of(run) if job.stage.kind != "generate")
        tasks = [planned for _, tasks in run.parts for planned in tasks]
        return [Evaluation(self.stages.folder(planned.scores), planned.scores.key) for planned in tasks]
