"""From the names of a request to a plan: everything is looked up and checked here, before any training starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from emobench.config import PRETRAINED
from emobench.data.texts import Texts, load_texts
from emobench.errors import ConfigError, DataError, ModelError, UnknownNameError
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.interface import TaskData
from emobench.models.folder import require_weights_here
from emobench.pipeline.planning.base_model import BaseModel
from emobench.pipeline.planning.find_model import find_base_model
from emobench.pipeline.planning.machine import check_machine
from emobench.pipeline.planning.names import check_sections, model_of, objectives_of, parts_of, suite_of
from emobench.pipeline.planning.plan import (
    Plan,
    PlannedRow,
    PlannedRun,
    PlannedTask,
    PlannedTraining,
    known_language,
    models_read,
)
from emobench.pipeline.planning.request import Request
from emobench.registry import LoadedObjective, load_kind
from emobench.tasks.spec import Suite, Task
from emobench.training.recipe import Recipe

if TYPE_CHECKING:
    pass


def make_plan(request: Request) -> Plan:
    """Look up every name of a request and check it; raises a UserError for the first thing that is wrong."""
    check_machine(request)
    suite = suite_of(request)
    objectives = objectives_of(request, suite)
    model = find_base_model(model_of(request, suite), request)
    if request.offline and not request.from_scratch:
        require_weights_here(model.source)
    planner = _Planner(request, suite, model)
    planner.check([objective for objective in objectives if objective is not None])
    rows = tuple(planner.row(objective, suite) for objective in objectives)
    return Plan(request, suite, planner.model, rows, tuple(recipe for recipe, _ in planner.parts))


@contextmanager
def naming_setting(task: Task, auxiliary: AuxiliaryModel) -> Iterator[None]:
    """Begin the error of an auxiliary model with the setting that it is from."""
    try:
        yield
    except (ModelError, UnknownNameError) as error:
        if auxiliary.use == "sentences":
            raise  # it names its setting by itself
        where = f"--set {auxiliary.setting}={auxiliary.name}"
        given = auxiliary.setting.removeprefix(f"{task.kind}.") in task.changes
        own = "" if given else f", by protocol {task.protocol_name} of task {task.name}"
        raise ModelError(f"{where}{own}: {str(error).removeprefix(f'--model {auxiliary.name}: ')}") from None


class _Planner:
    """What all rows of a plan share: the model, the recipes with their tasks, and the texts, each read once."""

    def __init__(self, request: Request, suite: Suite, model: BaseModel) -> None:
        self.request = request
        self.model = model
        self.parts = parts_of(request, suite)
        self._texts: dict[tuple[str, str], Texts] = {}
        self._data: dict[str, TaskData] = {}
        self._uses: dict[str, tuple[Mapping[str, AuxiliaryModel], dict[str, Any]]] = {}

    def check(self, objectives: Sequence[LoadedObjective]) -> None:
        """Check lengths, examples and models: what would fail after hours of training fails here."""
        check_sections(self.request, self.parts, trains=bool(objectives))
        for loaded in objectives:
            self._check_reads(loaded)
        for recipe, tasks in self.parts:
            if objectives:
                self.model.check_recipe(recipe)
                _check_selection(recipe, objectives)
            for task in tasks:
                kind = load_kind(task.kind)
                kind.check_device(task, self.request.device.partition(":")[0])
                self._check_data(task)
                self._check_auxiliary(task)
                kind.runtime.check(task, self.data(task), self.model)

    def _check_data(self, task: Task) -> None:
        try:
            self.data(task)
        except DataError as error:
            others = [other.name for _, tasks in self.parts for other in tasks if other.name != task.name]
            if not others:
                raise
            way = f"Or name the tasks that you have data for, of --set tasks={','.join(others)}."
            raise DataError(f"{error} {way}") from None

    def _check_auxiliary(self, task: Task) -> None:
        """Look for the models that a task uses besides the evaluated one."""
        for auxiliary in self.uses(task)[0].values():
            with naming_setting(task, auxiliary):
                self.model.known(auxiliary)

    def _check_reads(self, loaded: LoadedObjective) -> None:
        """Check the models whose heads an objective takes its costs from, its teachers, and the known language."""
        names = models_read(loaded)
        if self.request.from_scratch and PRETRAINED in names:
            from emobench.training.context import no_pretrained_head

            raise no_pretrained_head()
        if len(names) < len(loaded.objective.reads):
            self._check_language()
        for name in names:
            rows, own = self.model.known(AuxiliaryModel(name, "lm")).rows, self.model.rows
            if rows != own:
                raise ConfigError(
                    f"{loaded.objective}: the head of {name} has {rows} rows; expected {own}, the vocabulary of "
                    f"{self.model.name}. Take a model with the same tokenizer."
                )

    def _check_language(self) -> None:
        """Check that P is known of each corpus, and that the model reads the language's symbols."""
        from emobench.data.oracle import EOS, oracle_words
        from emobench.training.context import unknown_language

        for recipe, _ in self.parts:
            if known_language([self.texts(recipe.corpus, split) for split in ("train", "validation")]) is None:
                raise unknown_language(f"the corpus {recipe.corpus}")
        symbols = {word: symbol for symbol, word in enumerate([*oracle_words(), EOS])}
        if self.model.tokenizer.get_vocab() != symbols:
            raise ConfigError(
                f"target=language takes P from the oracle language, symbol by symbol, and {self.model.name} has other "
                "symbols; use --model tiny-oracle, or give a teacher: target=MODEL."
            )

    def texts(self, corpus: str, split: str) -> Texts:
        """Return a split of a corpus, read once."""
        if (corpus, split) not in self._texts:
            request = self.request
            self._texts[corpus, split] = load_texts(corpus, split, data_dirs=request.data_dirs, offline=request.offline)
        return self._texts[corpus, split]

    def data(self, task: Task) -> TaskData:
        """Return what a task reads, read once."""
        if task.name not in self._data:
            request = self.request
            load = load_kind(task.kind).runtime.load
            self._data[task.name] = load(task, data_dirs=request.data_dirs, offline=request.offline)
        return self._data[task.name]

    def uses(self, task: Task) -> tuple[Mapping[str, AuxiliaryModel], dict[str, Any]]:
        """Return a task's auxiliary models, and what else decides its generation; each found once."""
        if task.name not in self._uses:
            kind = load_kind(task.kind)
            self._uses[task.name] = kind.auxiliary_models(task), kind.generation_facts(task, self.model)
        return self._uses[task.name]

    def row(self, objective: LoadedObjective | None, suite: Suite) -> PlannedRow:
        seeds = (0,) if objective is None else self.request.seeds or suite.seeds
        return PlannedRow(objective, tuple(self._run(objective, seed) for seed in seeds))

    def _run(self, objective: LoadedObjective | None, seed: int) -> PlannedRun:
        parts = []
        for recipe, tasks in self.parts:
            training = None if objective is None else self._training(objective, recipe, seed)
            planned = (PlannedTask(t, self.data(t), self.model, training, *self.uses(t)) for t in tasks)
            parts.append((training, tuple(planned)))
        return PlannedRun(seed, tuple(parts))

    def _training(self, objective: LoadedObjective, recipe: Recipe, seed: int) -> PlannedTraining:
        texts = {split: self.texts(recipe.corpus, split) for split in ("train", "validation")}
        return PlannedTraining(self.model, objective, recipe, seed, texts)


def _check_selection(recipe: Recipe, objectives: Sequence[LoadedObjective]) -> None:
    from emobench.objectives.combination.combination import Combination

    for objective in (loaded.objective for loaded in objectives):
        if recipe.select == "objective" and isinstance(objective, Combination) and objective.scheduled:
            raise ConfigError(
                f"`recipe.select` is objective, but the weights of {objective} change over the training, so that its "
                "validation losses cannot be compared; use --set recipe.select=mle or --set recipe.select=last."
            )
