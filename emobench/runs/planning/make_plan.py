"""From the names of a request to a plan: everything is looked up and checked here, before any training starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from emobench.core.errors import ConfigError, DataError, ModelError, UnknownNameError
from emobench.core.extras import require
from emobench.core.settings import PRETRAINED
from emobench.data.conversations import FORMATS, EndWithinError
from emobench.data.oracle.language import EOS, oracle_words
from emobench.data.texts import Texts
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.models.device import check_device, is_here
from emobench.registry import LoadedObjective, load_kind
from emobench.runs.planning.base_model import BaseModel
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.plan import Plan, PlannedRow, PlannedRun
from emobench.runs.planning.planned import PlannedTask, PlannedTraining, known_language, models_read
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import check_sections, model_of, objectives_of, parts_of, suite_of
from emobench.tasks.spec import Suite, Task
from emobench.training.recipe import Recipe


def make_plan(request: Request, *, look: bool = False, check: bool = True, known: Ingredients | None = None) -> Plan:
    """Look up every name of a request and check it; raises a UserError for the first thing that is wrong.

    With `look` nothing is downloaded, and what is not here is noted: such a plan can be shown, and run where nothing is
    missing. Without `check` it can only be shown, at once. What `known`, of another request's plan, has read is not
    read again, as far as it may be shared.
    """
    there = not look or is_here(request.device)
    if there:
        check_machine(request)
    suite = suite_of(request)
    objectives = objectives_of(request, suite)
    ingredients = Ingredients(request, look=look, known=known)
    model = ingredients.base_model(model_of(request, suite))
    planner = _Planner(request, suite, model, ingredients)
    trained = [objective for objective in objectives if objective is not None]
    check_sections(request, planner.parts, trains=bool(trained))
    if trained and request.recorded is None:  # what is repeated was asked for
        for recipe, task in ((recipe, task) for recipe, tasks in planner.parts for task in tasks):
            load_kind(task.kind).check_template(task, recipe.template)
    if look:
        planner.look(trained)
    planner.ready = check and there and not ingredients.downloads and not ingredients.unusable
    if planner.ready:
        planner.check(trained)
    labels = [PRETRAINED if objective is None else repr(objective.objective) for objective in objectives]
    asked = request.objectives if request.objectives and not request.section("objective") else labels
    rows = tuple(planner.row(objective, text) for objective, text in zip(objectives, asked, strict=True))
    recipes = tuple(recipe for recipe, _ in planner.parts)
    if any(recipe.adapters for recipe in recipes):
        require("peft")
    return Plan(request, suite, model, rows, ingredients, recipes, planner.ready)


def check_machine(request: Request) -> None:
    """Raise a UserError for a device that is not here, or a tracker that is unknown or not installed."""
    check_device(request.device)
    if not request.trackers:
        return
    from transformers.integrations import integration_utils as trackers

    known, installed = trackers.INTEGRATION_TO_CALLBACK, trackers.get_available_reporting_integrations()
    for name in request.trackers:
        if name not in known:
            raise UnknownNameError("tracker", name, known, where="--track: ")
        if name not in installed:
            raise ConfigError(
                f"--track {name}: the tracker is not installed; pip install {name}, or 'emobench[trackers]' for "
                "tensorboard, trackio and wandb."
            )
        try:
            known[name]()
        except Exception as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise ConfigError(f"--track {name}: the tracker cannot be started ({reason}).") from error


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

    def __init__(self, request: Request, suite: Suite, model: BaseModel, ingredients: Ingredients) -> None:
        self.request = request
        self.model = model
        self.ingredients = ingredients
        self.parts = parts_of(request, suite)
        self.seeds = request.seeds or suite.seeds
        self.ready = False
        self._uses: dict[str, tuple[Mapping[str, AuxiliaryModel], dict[str, Any]]] = {}

    def look(self, objectives: Sequence[LoadedObjective]) -> None:
        """Look for all that the request needs, and note what is not here."""
        found = self.ingredients
        for recipe, tasks in self.parts:
            for split in ("train", "validation") if objectives else ():
                found.training_texts(recipe, split)
            for task in tasks:
                self.data(task)
                program = load_kind(task.kind).generated_by(task, self.request.device)
                if program is not None and program.missing is not None:
                    found.unusable[program.name] = program.missing
                for auxiliary in load_kind(task.kind).auxiliary_models(task).values():
                    if auxiliary.name != PRETRAINED:
                        with naming_setting(task, auxiliary):
                            found.auxiliary(auxiliary)
        for objective in objectives:
            for name in models_read(objective):
                found.auxiliary(AuxiliaryModel(name, "lm"))

    def check(self, objectives: Sequence[LoadedObjective]) -> None:
        """Check lengths, examples and models: what would fail after hours of training fails here."""
        for loaded in objectives:
            self._check_reads(loaded)
        for recipe, tasks in self.parts:
            if objectives:
                self.model.check_recipe(recipe)
                _check_selection(recipe, objectives)
                self._check_conversations(recipe, objectives)
            for task in tasks:
                kind = load_kind(task.kind)
                self._check_data(task)
                for auxiliary in self.uses(task)[0].values():
                    with naming_setting(task, auxiliary):
                        self.model.known(auxiliary)
                kind.runtime.check(task, self.data(task), self.model)

    def _check_conversations(self, recipe: Recipe, objectives: Sequence[LoadedObjective]) -> None:
        """Check that the first conversation can be rendered, and that each objective can be computed on such rows."""
        from emobench.objectives import ModelObjective

        if recipe.template == "none":
            return
        conversations = self.ingredients.conversations(recipe, "train")
        assert conversations is not None
        with suppress(EndWithinError):  # the training leaves such a row out
            FORMATS[recipe.template](self.model.tokenizer).tokens(conversations.conversation(0), recipe.responses)
        for objective in (loaded.objective for loaded in objectives):
            if recipe.weights and isinstance(objective, ModelObjective):
                raise ConfigError(
                    f"`recipe.weights` is {recipe.weights}, and {objective.name} weighs its own units; drop it, or "
                    "take an objective on tokens."
                )
            if recipe.packing == "conversations" and (isinstance(objective, ModelObjective) or objective.side_names):
                raise ConfigError(
                    f"`recipe.packing` is conversations, and {objective.name} reads whole rows, in which it would mix "
                    "conversations; set recipe.packing=rows."
                )

    def _check_data(self, task: Task) -> None:
        try:
            self.data(task)
        except DataError as error:
            others = [other.name for _, tasks in self.parts for other in tasks if other.name != task.name]
            if not others:
                raise
            way = f"Or name the tasks that you have data for, of --set tasks={','.join(others)}."
            raise DataError(f"{error} {way}") from None

    def _check_reads(self, loaded: LoadedObjective) -> None:
        """Check the models whose heads an objective takes its costs from, its teachers, and the known language."""
        from emobench.training.context import no_pretrained_head, unknown_language

        names = models_read(loaded)
        if self.request.from_scratch and PRETRAINED in names:
            raise no_pretrained_head()
        if len(names) < len(loaded.objective.reads):  # it reads the language, too
            for recipe, _ in self.parts:
                if known_language(self.texts(recipe).values()) is None:
                    raise unknown_language(f"the corpus {recipe.corpus}")
            self._check_symbols()
        for name in names:
            rows, own = self.model.known(AuxiliaryModel(name, "lm")).rows, self.model.rows
            if rows != own:
                raise ConfigError(
                    f"{loaded.objective}: the head of {name} has {rows} rows; expected {own}, the vocabulary of "
                    f"{self.model.name}. Take a model with the same tokenizer."
                )

    def _check_symbols(self) -> None:
        """Check that the model reads the symbols of the oracle language."""
        symbols = {word: symbol for symbol, word in enumerate([*oracle_words(), EOS])}
        if self.model.tokenizer.get_vocab() != symbols:
            raise ConfigError(
                f"target=language takes P from the oracle language, symbol by symbol, and {self.model.name} has other "
                "symbols; use --model tiny-oracle, or give a teacher: target=MODEL."
            )

    def texts(self, recipe: Recipe) -> dict[str, Texts]:
        """Return the train and validation splits of a recipe's corpus, as far as they are here."""
        found = {split: self.ingredients.training_texts(recipe, split) for split in ("train", "validation")}
        return {split: texts for split, texts in found.items() if texts is not None}

    def data(self, task: Task) -> Any:
        """Return what a task reads, read once; None where it is not here."""
        return self.ingredients.task_data(task)

    def uses(self, task: Task) -> tuple[Mapping[str, AuxiliaryModel], dict[str, Any]]:
        """Return a task's auxiliary models, and what else decides its generation; each found once."""
        if task.name not in self._uses:
            kind = load_kind(task.kind)
            facts = kind.generation_facts(task, self.model) if self.ready else {}
            self._uses[task.name] = kind.auxiliary_models(task), facts
        return self._uses[task.name]

    def row(self, objective: LoadedObjective | None, asked: str) -> PlannedRow:
        """Return the runs of an objective."""
        seeds = (0,) if objective is None else self.seeds
        return PlannedRow(objective, tuple(self._run(objective, seed) for seed in seeds), asked)

    def _run(self, objective: LoadedObjective | None, seed: int) -> PlannedRun:
        parts = []
        for recipe, tasks in self.parts:
            texts = {} if objective is None else self.texts(recipe)
            training = None if objective is None else PlannedTraining(self.model, objective, recipe, seed, texts)
            planned = (PlannedTask(t, self.data(t), self.model, training, *self.uses(t)) for t in tasks)
            parts.append((training, tuple(planned)))
        return PlannedRun(seed, tuple(parts))


def _check_selection(recipe: Recipe, objectives: Sequence[LoadedObjective]) -> None:
    from emobench.objectives.combination.combination import Combination

    for objective in (loaded.objective for loaded in objectives):
        if recipe.select == "objective" and isinstance(objective, Combination) and objective.scheduled:
            raise ConfigError(
                f"`recipe.select` is objective, but the weights of {objective} change over the training, so that its "
                "validation losses cannot be compared; use --set recipe.select=mle or --set recipe.select=last."
            )
