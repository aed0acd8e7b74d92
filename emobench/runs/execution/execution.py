"""What makes the stages of a plan: it walks their graph, and loads each model and each corpus once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from emobench.core.locks import locked
from emobench.core.settings import PRETRAINED
from emobench.kinds.interface import Subject
from emobench.models.device import free_memory
from emobench.models.model import AuxiliaryModel, Model
from emobench.runs.execution.launch import Launch, rank
from emobench.runs.execution.reporter import Progress, Reporter, Silent
from emobench.runs.planning.rebuild import describe
from emobench.runs.planning.request import Request
from emobench.runs.signals import interruptible
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.evaluate import Evaluation, PlannedTask, Shared
from emobench.runs.stages.stage import Stage, Stages
from emobench.runs.stages.train import PlannedTraining


class Execution:
    """Makes stages in the folder of runs, one after the other. Finished stages are reused."""

    def __init__(
        self,
        request: Request,
        model: Model,
        reporter: Reporter | None = None,
        *,
        anew: Collection[str] = (),
        launch: Launch | None = None,
        corpora: PackedCorpora | None = None,
    ) -> None:
        """Stages of the kinds in `anew` are made once more. Trainings are made by the processes of `launch`, if any.

        `corpora` may be those of another plan.
        """
        self.request = request
        self.model = model
        self.reporter = reporter or Silent()
        self.stages = Stages(request.runs, anew, self.reporter.note)
        self.launch = launch
        self.corpora = corpora or PackedCorpora(self.stages, self.reporter)
        self._loaded: dict[str, Model] = {}
        """The evaluated model by its training's key, one at a time."""
        self._expected: list[str] = []
        self._begun: set[str] = set()
        self._others: dict[AuxiliaryModel, Model] = {}
        if request.max_memory is not None:
            from emobench.training.memory import limit_memory

            limit_memory(request.device, request.max_memory)

    def expect(self, keys: Iterable[str]) -> None:
        """Report each of these stages, before it is made, with its place among them."""
        self._expected = list(keys)

    def folder(self, stage: Stage, *, reads: bool = False) -> Path:
        """Return the folder of a stage, after making it and what it needs; with `reads`, all its files are hashed."""
        if stage.key in self._expected and stage.key not in self._begun:
            self._begun.add(stage.key)
            self.reporter.stage(len(self._begun), len(self._expected))
        for source in stage.made_of:
            if damage := self.stages.damage(source, full=True):
                self.stages.drop(stage, f"{damage}, of which scores were made")
        glance = stage.glance and not reads
        if not self.stages.is_whole(stage, full=not glance):
            for need in stage.needs:
                self.folder(need)
        make = partial(stage.make, tools=self)
        return self.stages.make(stage, make, continues=stage.continues, glance=glance)

    def evaluations(self, tasks: Sequence[PlannedTask]) -> list[Evaluation]:
        """Return the evaluations of tasks, after making them."""
        return [Evaluation(self.folder(task.scores), task.scores.key) for task in tasks]

    def base(self, model: Model) -> Model:
        """Return a model with its files, after making them if a stage does."""
        for stage in model.stages:
            return model.trained_in(self.folder(stage) / "model")
        return replace(model)

    def load(self, model: Model, training: PlannedTraining | None = None, *, weights: bool = True) -> Model:
        """Return the model as it is or as a training made it; it stays in memory until another one is loaded.

        With `weights=False` none is in memory afterwards.
        """
        key = "" if training is None else training.key
        if weights and key in self._loaded:
            return self._loaded[key]
        if self._loaded:
            self._loaded.clear()
            free_memory()
        loaded = self.base(model) if training is None else model.trained_in(self.folder(training, reads=True) / "model")
        if weights:
            self._loaded[key] = loaded
        return loaded

    def subject(self, of: PlannedTask, *, weights: bool = True) -> Subject:
        """Return the model that a task evaluates, with all that its evaluation may use."""
        return self.subject_of(self.load(of.model, of.training, weights=weights), of.subject, weights=weights)

    def subject_of(self, model: Model, facts: Mapping[str, Any], *, weights: bool = True) -> Subject:
        """Return a model with all that an evaluation may use; without `weights`, another program reads its files."""
        return Subject(
            model=model.model if weights else None,
            tokenizer=model.tokenizer,
            other=self._other,
            work=self._work,
            sentence_encoder=self.model.sentence_encoder,
            keep=self._keep,
            facts=facts,
            files=None if weights else model,
        )

    def take_part(self, stage: Stage) -> None:
        """Be one of the processes that make a stage in its folder, which another process has locked."""
        folder = self.stages.unfinished(stage)
        # Processes of a command that was killed may not have ended yet.
        lock = folder.with_name(f"{stage.key}.training.lock")
        with locked(lock) if rank() == 0 else nullcontext():
            stage.make(folder, self)

    def make_room(self) -> None:
        """Let go of all models: a training has the memory for itself. They are loaded again if they are needed."""
        self._loaded.clear()
        self._others.clear()
        free_memory()

    def launch_training(self, training: PlannedTraining) -> None:
        """Let the processes of the launch make a training, whose stage this process has locked."""
        assert self.launch is not None
        describe([training], self.request, self.stages)
        what = f"{training.objective.objective}, seed {training.seed}, its training by {self.launch.size} processes"
        self.launch.train(training.key, what, self.stages.root, self.reporter)

    @contextmanager
    def _work(self, title: str, unit: str) -> Iterator[Progress]:
        with self.reporter.work(title, unit) as progress:
            yield interruptible(progress)

    def _keep(self, kind: str, facts: Mapping[str, Any], write: Callable[[Path], None]) -> Path:
        return self.folder(Shared(kind, facts, write))

    def _other(self, auxiliary: AuxiliaryModel) -> Model:
        if auxiliary not in self._others:
            if auxiliary.name == PRETRAINED:
                self._others[auxiliary] = self.base(self.model.trained_from or self.model)
            else:
                self._others[auxiliary] = replace(self.model.other(auxiliary))
        return self._others[auxiliary]
