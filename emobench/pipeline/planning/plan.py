"""The work that a request comes to: trainings and evaluations, with the stages that they make.

A plan holds one `PlannedRun` for each objective, recipe of the suite, and seed: a training (none for a model as it is)
and the tasks that evaluate it. Their stages have keys, so that a plan also knows what is finished; where the harness
makes the base model, they have them once it is made, as its weights are part of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emobench.config import PRETRAINED
from emobench.pipeline.planning.base_model import BaseModel
from emobench.pipeline.planning.ingredients import Ingredients
from emobench.pipeline.planning.planned import PlannedTask, PlannedTraining
from emobench.pipeline.planning.request import Request
from emobench.registry import LoadedObjective
from emobench.tasks.spec import Suite
from emobench.training.recipe import Recipe


@dataclass(frozen=True)
class PlannedRun:
    """One seed of one row: its trainings, one for each recipe of the suite, and the tasks of each."""

    seed: int
    parts: tuple[tuple[PlannedTraining | None, tuple[PlannedTask, ...]], ...]


@dataclass(frozen=True)
class PlannedRow:
    """One leaderboard row: an objective (None: the model as it is) over its seeds."""

    objective: LoadedObjective | None
    runs: tuple[PlannedRun, ...]
    asked: str = PRETRAINED
    """The objective as it was asked for: defaults that were given stay to be seen."""

    @property
    def label(self) -> str:
        return PRETRAINED if self.objective is None else repr(self.objective.objective)


@dataclass(frozen=True)
class Plan:
    """All that a request comes to: the same for a run and for a dry run, which may lack what is not here."""

    request: Request
    suite: Suite
    model: BaseModel
    rows: tuple[PlannedRow, ...]
    ingredients: Ingredients
    recipes: tuple[Recipe, ...] = ()
    ready: bool = True
    """Whether all that it needs is here and was checked, so that it can run; else it can only be shown."""

    def trainings(self) -> Iterator[PlannedTraining]:
        """Each training once, in order."""
        for row in self.rows:
            for run in row.runs:
                yield from (training for training, _ in run.parts if training is not None)

    def tasks(self) -> Iterator[PlannedTask]:
        """Each evaluation, in order."""
        for row in self.rows:
            for run in row.runs:
                for _, tasks in run.parts:
                    yield from tasks
