"""The stages of a plan as jobs, in an order in which they can be made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emobench.pipeline.planning.find_model import MadeModel
from emobench.pipeline.planning.plan import Plan, PlannedRun
from emobench.pipeline.planning.planned import PlannedTask, PlannedTraining
from emobench.pipeline.stages.stage import Stage


@dataclass(frozen=True)
class Job:
    """A stage, and the planned work that makes it."""

    stage: Stage
    planned: PlannedTraining | PlannedTask | MadeModel
    """A made model stands for its pre-training."""


def base_jobs(plan: Plan) -> Iterator[Job]:
    """Yield the pre-training of a base model that the harness makes, which comes before all else."""
    if isinstance(plan.model, MadeModel):
        yield Job(plan.model.pretraining.stage, plan.model)


def jobs_of(run: PlannedRun) -> Iterator[Job]:
    """Yield each stage of a run: trainings, and the generation and the scores of each task."""
    for training, tasks in run.parts:
        if training is not None:
            yield Job(training.stage, training)
        for task in tasks:
            yield Job(task.generation, task)
            yield Job(task.scores, task)


def plan_jobs(plan: Plan) -> Iterator[Job]:
    """Yield each stage of a plan; where the harness makes the base model, it has to be there."""
    yield from base_jobs(plan)
    for row in plan.rows:
        for run in row.runs:
            yield from jobs_of(run)
