"""What makes the stages of a plan. Results are read from the folder of runs, wherever they were made."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from emobench.core.locks import locked
from emobench.models.device import free_memory
from emobench.runs.execution.corpora import PackedCorpora
from emobench.runs.execution.evaluate import Evaluator
from emobench.runs.execution.group import rank
from emobench.runs.execution.launch import Launch
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.train import Trainer
from emobench.runs.planning.find_model import MadeModel
from emobench.runs.planning.plan import Plan, PlannedStage
from emobench.runs.planning.planned import PlannedTask, PlannedTraining
from emobench.runs.planning.rebuild import describe
from emobench.runs.stages.stage import Stages


class Executor(Protocol):
    """Makes stages, and is told of those that others made."""

    def prepare(self) -> None:
        """Check what needs the data, and make the base model if the harness makes it: only then stages have keys."""
        ...

    def execute(self, stages: Iterable[PlannedStage]) -> None:
        """Finish these stages, with all that they need; returns when they are in the folder of runs.

        Finished ones are reused. A stage may need those before it.
        """
        ...

    def take_part(self, training: PlannedTraining) -> None:
        """Be one of the processes that train in the folder of a stage that another process has locked."""
        ...


class InProcess:
    """Makes one stage after the other in this process; a model is loaded once for the tasks that evaluate it."""

    def __init__(
        self,
        plan: Plan,
        stages: Stages,
        reporter: Reporter,
        launch: Launch | None = None,
        corpora: PackedCorpora | None = None,
    ) -> None:
        """Trainings are made by the processes of `launch`, if it is given; `corpora` may be those of another plan."""
        self._plan = plan
        self._stages = stages
        self._reporter = reporter
        self._launch = launch
        elsewhere = None if launch is None else self._train_together
        self._trainer = Trainer(stages, reporter, plan.request.trackers, elsewhere, corpora, self._make_room)
        self._evaluator = Evaluator(stages, reporter, plan.model, lambda: self._trainer.base_folder(plan.model))
        if plan.request.max_memory is not None:
            from emobench.training.memory import limit_memory

            limit_memory(plan.request.device, plan.request.max_memory)
        self._loaded: dict[str, Any] = {}
        """The evaluated model by its training's key, one at a time."""

    def prepare(self) -> None:
        """Pack every corpus before the first training starts; then make the base model."""
        there = self._plan.model.is_there
        for planned in self._plan.trainings():
            if not there or not self._stages.is_finished(planned.stage):
                for split in planned.texts:
                    self._trainer.corpora.rows(planned, split)
        if not there:
            self._trainer.base_folder(self._plan.model)

    def execute(self, stages: Iterable[PlannedStage]) -> None:
        for planned in stages:
            if isinstance(planned.work, PlannedTask):
                make = self._evaluator.generate if planned.stage.kind == "generate" else self._evaluator.evaluate
                make(planned.work, self._loader(planned.work.training))
            elif isinstance(planned.work, MadeModel):
                self._trainer.base_folder(planned.work)
            else:
                self._trainer.folder(planned.work)

    def take_part(self, training: PlannedTraining) -> None:
        folder = self._stages.unfinished(training.stage)
        if rank() > 0:
            self._trainer.train(training, folder)
            return
        # Processes of a command that was killed may not have ended yet.
        with locked(folder.with_name(f"{training.stage.key}.training.lock")):
            self._trainer.train(training, folder)

    def _make_room(self) -> None:
        """A training has the memory for itself."""
        self._loaded.clear()
        self._evaluator.forget_models()
        free_memory()

    def _train_together(self, training: PlannedTraining) -> None:
        assert self._launch is not None
        describe([PlannedStage(training.stage, training)], self._plan.request, self._stages)
        what = f"{training.objective.objective}, seed {training.seed}, its training by {self._launch.size} processes"
        self._launch.train(training.stage.key, what, self._stages.root, self._reporter)

    def _loader(self, training: PlannedTraining | None) -> Callable[..., Any]:
        """Return what loads the evaluated model where something needs it, after training it if need be.

        With `weights=False` none is in memory afterwards, and only its tokenizer is loaded.
        """
        key = "" if training is None else training.stage.key

        def load(*, weights: bool = True) -> Any:
            if not weights or key not in self._loaded:
                if self._loaded:
                    self._loaded.clear()
                    free_memory()
                trained = None if training is None else self._trainer.folder(training, reads=True) / "model"
                folder = self._trainer.base_folder(self._plan.model) if trained is None else trained
                if not weights:
                    return self._plan.model.load_without_weights(folder)
                self._loaded[key] = self._plan.model.load(folder, frozen=True)
            return self._loaded[key]

        return load
