"""The work that a request comes to: a graph of stages.

A plan has a `PlannedRun` for each objective and seed: its trainings (none for a model as it is) and the tasks that
evaluate each. Stages have keys, so that a plan also knows what is finished. If the harness makes the base model, they
have keys once it is made, as its weights are part of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emobench.core.settings import PRETRAINED
from emobench.models.model import Model
from emobench.registry import LoadedObjective
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.request import Request
from emobench.runs.stages.evaluate import PlannedTask, RunExamples
from emobench.runs.stages.stage import Stage
from emobench.runs.stages.train import PlannedTraining
from emobench.tasks.spec import Suite
from emobench.training.recipe import Recipe


def graph(roots: Iterable[Stage]) -> Iterator[Stage]:
    """Yield the stages that lead to `roots`, each once and after those that it needs."""
    seen: set[int] = set()

    def walk(stage: Stage) -> Iterator[Stage]:
        if id(stage) not in seen:
            seen.add(id(stage))
            for need in stage.needs:
                yield from walk(need)
            yield stage

    for root in roots:
        yield from walk(root)


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
        tasks = []
        for _, evaluated in self.parts:
            tasks += evaluated
        return tasks

    def stages(self) -> Iterator[Stage]:
        """Yield its trainings, and the generation and the scores of each task, in an order to make them in."""
        for training, tasks in self.parts:
            if training is not None:
                yield training
            for task in tasks:
                yield task.generation
                yield task.scores

    def examples(self, command: str) -> RunExamples:
        """Return the stage of the run's per-example results, which the command recorded."""
        return RunExamples(self.tasks(), self.trainings(), command)


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

    def words(self, run: PlannedRun) -> str:
        """Return the name of one of its runs: its label, and the seed of a training."""
        return self.label if self.objective is None else f"{self.label}, seed {run.seed}"

    def keys(self) -> list[str]:
        """Return the keys of its stages."""
        keys = []
        for run in self.runs:
            keys += [stage.key for stage in run.stages()]
        return keys


@dataclass(frozen=True)
class Plan:
    """All stages of a request: the same for a run and for a dry run, which may lack files."""

    request: Request
    suite: Suite
    model: Model
    rows: tuple[PlannedRow, ...]
    ingredients: Ingredients
    recipes: tuple[Recipe, ...] = ()
    ready: bool = True
    """Whether all that it needs is here and was checked, so that it can run; else it can only be shown."""

    def runs(self) -> list[PlannedRun]:
        """Return the runs of all rows, in order."""
        return [run for _, run in self.rows_and_runs()]

    def rows_and_runs(self) -> Iterator[tuple[PlannedRow, PlannedRun]]:
        """Yield each run with its row, in order."""
        for row in self.rows:
            for run in row.runs:
                yield row, run

    def trainings(self) -> list[PlannedTraining]:
        """Return each training once, in order."""
        trainings = []
        for run in self.runs():
            trainings += run.trainings()
        return trainings

    def tasks(self) -> list[PlannedTask]:
        """Return each evaluation, in order."""
        tasks = []
        for run in self.runs():
            tasks += run.tasks()
        return tasks

    def evaluated(self) -> list[PlannedTask]:
        """Return the tasks of the first run; every run has the same."""
        return self.rows[0].runs[0].tasks() if self.rows else []

    def warnings(self) -> list[str]:
        """Return what a reader has to know before the trainings start."""
        if not self.trainings():
            return []
        return [
            f"Warning: recipe {recipe.name} trains {recipe.weight_dtype} weights (recipe.weight_dtype), which rounds "
            "most small updates away: with a learning rate of 1e-5, 7.5 % of the weights of one model changed, and "
            "98.4 % with float32. Drop the setting to train float32 weights."
            for recipe in self.recipes
            if recipe.weight_dtype != "float32" and recipe.adapters is None
        ]

    def stages(self) -> list[Stage]:
        """Return the whole graph, each stage once and after those that it needs."""
        return list(graph([*self.model.stages, *(run.examples(self.request.command) for run in self.runs())]))
