"""The whole job: plan, train, evaluate, record."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from emobench.leaderboard.schema.entry import Entry
from emobench.pipeline.execution.evaluate import Evaluation, Evaluator
from emobench.pipeline.execution.prerequisites import require_generated, require_trained
from emobench.pipeline.execution.record import record_row
from emobench.pipeline.execution.reporter import Reporter, Silent
from emobench.pipeline.execution.tracking import finished_trainings, say_where, track_metrics
from emobench.pipeline.execution.train import Trainer
from emobench.pipeline.planning.plan import Plan, PlannedRun, PlannedTraining
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
    done = [(planned, worker.trainer.folder(planned) / "model") for planned in plan.trainings()]
    say_where(plan, worker.reused, worker.stages, worker.reporter, metrics=False)
    return done


class _Worker:
    def __init__(self, plan: Plan, reporter: Reporter, anew: Collection[str] = ()) -> None:
        self.plan = plan
        self.reporter = reporter
        self.stages = Stages(plan.request.runs, anew, reporter.note)
        self.reused: frozenset[str] = frozenset()
        self.trainer = Trainer(self.stages, reporter, plan.request.trackers)
        self.evaluator = Evaluator(self.stages, reporter, plan.model, self._made_folder)

    def check(self) -> None:
        """Check what needs the data: every corpus is packed before the first training starts; then make the base model.

        Only then the keys of stages are known, where the harness makes that model.
        """
        require_writable(self.stages.root, "--runs")
        if self.plan.request.suite is not None:  # an entry will be recorded
            require_writable(self.plan.request.leaderboard, "--leaderboard")
        there = self.plan.model.is_there
        for planned in self.plan.trainings():
            if not there or not self.stages.is_finished(planned.stage):
                for split in planned.texts:
                    self.trainer.pack(planned, split)
        if not there:
            self._made_folder()
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
        found = []
        for training, tasks in run.parts:
            load = self._loader(training)
            found += [self.evaluator.evaluate(planned, load) for planned in tasks]
        return found

    def _loader(self, training: PlannedTraining | None) -> Callable[[], Any]:
        """Return what loads the evaluated model, once; the training is done even where nothing needs its model."""
        loaded: list[Any] = []
        if training is not None:
            self.trainer.folder(training)

        def load() -> Any:
            if not loaded:
                trained = None if training is None else self.trainer.folder(training, reads=True) / "model"
                loaded.append(self.plan.model.load(self._made_folder() if trained is None else trained))
            return loaded[0]

        return load

    def _made_folder(self) -> Path | None:
        return self.trainer.base_folder(self.plan.model)
