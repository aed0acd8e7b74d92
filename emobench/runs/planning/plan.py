"""The work that a request comes to: trainings and evaluations, with the stages that they make.

A plan holds one `PlannedRun` for each objective, recipe of the suite, and seed: a training (none for a model as it is)
and the tasks that evaluate it. Their stages have keys, so that a plan also knows what is finished; where the harness
makes the base model, they have them once it is made, as its weights are part of each. A stage with what makes it is a
`PlannedStage`; a plan yields them in an order in which they can be made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from emobench.core.settings import PRETRAINED
from emobench.registry import LoadedObjective
from emobench.runs.planning.base_model import BaseModel
from emobench.runs.planning.find_model import MadeModel
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.planned import PlannedTask, PlannedTraining
from emobench.runs.planning.request import Request
from emobench.runs.stages.stage import Stage
from emobench.tasks.spec import Suite
from emobench.training.recipe import Recipe


@dataclass(frozen=True)
class PlannedStage:
    """A stage, and the planned work that makes it."""

    stage: Stage
    work: PlannedTraining | PlannedTask | MadeModel
    """A made model stands for its pre-training."""


@dataclass(frozen=True)
class PlannedRun:
    """One seed of one row: its trainings, one for each recipe of the suite, and the tasks of each."""

    seed: int
    parts: tuple[tuple[PlannedTraining | None, tuple[PlannedTask, ...]], ...]

    def trainings(self) -> list[PlannedTraining]:
        """Return its trainings; none for a model as it is."""
        return [training for training, _ in self.parts if training is not None]

    def tasks(self) -> list[PlannedTask]:
        """Return its evaluations, in order."""
        return [planned for _, tasks in self.parts for planned in tasks]

    def stages(self) -> Iterator[PlannedStage]:
        """Yield each stage: trainings, and the generation and the scores of each task."""
        for training, tasks in self.parts:
            if training is not None:
                yield PlannedStage(training.stage, training)
            for task in tasks:
                yield PlannedStage(task.generation, task)
                yield PlannedStage(task.scores, task)


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

    def runs(self) -> list[PlannedRun]:
        """Return the runs of all rows, in order."""
        return [run for row in self.rows for run in row.runs]

    def trainings(self) -> list[PlannedTraining]:
        """Return each training once, in order."""
        return [training for run in self.runs() for training in run.trainings()]

    def tasks(self) -> list[PlannedTask]:
        """Return each evaluation, in order."""
        return [planned for run in self.runs() for planned in run.tasks()]

    def warnings(self) -> list[str]:
        """Return what a reader has to know before the trainings start."""
        if not self.trainings():
            return []
        half = [recipe for recipe in self.recipes if recipe.weight_dtype != "float32" and recipe.adapters is None]
        return [
            f"Warning: recipe {recipe.name} trains {recipe.weight_dtype} weights (recipe.weight_dtype), which rounds "
            "most small updates away: with a learning rate of 1e-5, 7.5 % of the weights of one model changed, and "
            "98.4 % with float32. Drop the setting to train float32 weights."
            for recipe in half
        ]

    def base_stages(self) -> list[PlannedStage]:
        """Return the pre-training of a base model that the harness makes, which comes before all else."""
        return [PlannedStage(self.model.pretraining.stage, self.model)] if isinstance(self.model, MadeModel) else []

    def stages(self) -> list[PlannedStage]:
        """Return all stages; where the harness makes the base model, it has to be there."""
        return [*self.base_stages(), *(stage for run in self.runs() for stage in run.stages())]
