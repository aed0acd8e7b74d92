"""From the names of a request to a plan: everything is looked up and checked here, before any training starts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from emobench.core.errors import ConfigError, DataError, Missing, ModelError, UnknownNameError
from emobench.core.extras import require
from emobench.core.settings import PRETRAINED
from emobench.data.conversations import FORMATS, EndWithinError
from emobench.data.oracle.language import EOS, oracle_words
from emobench.data.texts import Texts
from emobench.models.device import check_device, is_here
from emobench.models.model import AuxiliaryModel
from emobench.registry import LoadedObjective, load_kind
from emobench.runs.planning.find_model import check_recipe
from emobench.runs.planning.ingredients import Ingredients
from emobench.runs.planning.plan import Plan, PlannedRow, PlannedRun
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import check_sections, model_of, objectives_of, parts_of, suite_of
from emobench.runs.stages.evaluate import PlannedTask
from emobench.runs.stages.train import PlannedTraining, known_language, models_read
from emobench.tasks.spec import Task
from emobench.training.recipe import Recipe


def make_plan(request: Request, *, look: bool = False, check: bool = True, known: Ingredients | None = None) -> Plan:
    """Look up every name of a request and check it; raises a UserError for the first thing that is wrong.

    See `Planner.plan`.
    """
    return Planner(request).plan(look=look, check=check, known=known)


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
    except (Missing, ModelError, UnknownNameError) as error:
        where = f"--set {auxiliary.setting}={auxiliary.name}"
        given = auxiliary.setting.removeprefix(f"{task.kind}.") in task.changes
        own = "" if given else f", by protocol {task.protocol_name} of task {task.name}"
        instead = f" Or {auxiliary.instead}." if auxiliary.instead else ""
        raise ModelError(f"{where}{own}: {str(error).removeprefix(f'--model {auxiliary.name}: ')}{instead}") from None


class Planner:
    """The names of a request, looked up once; its plan may be made to be shown, and then to be run."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.suite = suite_of(request)
        self.objectives = objectives_of(request, self.suite)
        self.seeds = request.seeds or self.suite.seeds
        self.parts = parts_of(request, self.suite)
        self.trained = [objective for objective in self.objectives if objective is not None]
        check_sections(request, self.parts, trains=bool(self.trained))
        if self.trained and request.recorded is None:  # what is repeated was asked for
            for recipe, tasks in self.parts:
                for task in tasks:
                    load_kind(task.kind).check_template(task, recipe.template)
        if any(recipe.adapters for recipe, _ in self.parts):
            require("peft")
        self._known: Ingredients | None = None

    def plan(self, *, look: bool = False, check: bool = True, known: Ingredients | None = None) -> Plan:
        """Return the plan, with all that it reads: models, corpora and data sets.

        With `look` nothing is downloaded, and missing files are noted: such a plan can be shown, and run if nothing is
        missing. Without `check` it can only be shown, at once. Files that `known`, of another request's plan, or a plan
        before has read are not read again, as far as they may be shared.
        """
        request = self.request
        there = not look or is_here(request.device)
        if there:
            check_machine(request)
        self.ingredients = self._known = Ingredients(request, look=look, known=known or self._known)
        self.model = self.ingredients.base_model(model_of(request, self.suite))
        if look:
            self._look()
        ready = check and there and not self.ingredients.missing
        if ready:
            self._check()
        labels = [PRETRAINED if one is None else repr(one.objective) for one in self.objectives]
        asked = request.objectives if request.objectives and not request.section("objective") else labels
        uses: dict[str, dict[str, Any]] = {}
        for _, tasks in self.parts:
            for task in tasks:
                kind = load_kind(task.kind)
                facts = kind.generation_facts(task, self.model) if ready else {}
                uses[task.name] = {"auxiliary": kind.auxiliary_models(task), "generation_facts": facts}
        rows = []
        for objective, text in zip(self.objectives, asked, strict=True):
            seeds = (0,) if objective is None else self.seeds
            rows.append(PlannedRow(objective, tuple(self._run(objective, seed, uses) for seed in seeds), text))
        recipes = tuple(recipe for recipe, _ in self.parts)
        return Plan(request, self.suite, self.model, tuple(rows), self.ingredients, recipes, ready)

    def _run(self, objective: LoadedObjective | None, seed: int, uses: Mapping[str, dict[str, Any]]) -> PlannedRun:
        parts = []
        for recipe, tasks in self.parts:
            training = None
            if objective is not None:
                training = PlannedTraining(self.model, objective, recipe, seed, self._texts(recipe))
            planned = []
            for task in tasks:
                data = self.ingredients.task_data(task)
                planned.append(PlannedTask(task, data, self.model, training, **uses[task.name]))
            parts.append((training, tuple(planned)))
        return PlannedRun(seed, tuple(parts))

    def _texts(self, recipe: Recipe) -> dict[str, Texts]:
        """Return the train and validation splits of a recipe's corpus, as far as they are on this machine."""
        splits = {}
        for split in ("train", "validation"):
            texts = self.ingredients.training_texts(recipe, split)
            if texts is not None:
                splits[split] = texts
        return splits

    def _look(self) -> None:
        """Look for all files that the request needs, and note missing ones."""
        ingredients = self.ingredients
        for recipe, tasks in self.parts:
            if self.trained:
                self._texts(recipe)
            for task in tasks:
                ingredients.task_data(task)
                program = load_kind(task.kind).generated_by(task, self.request.device)
                if program is not None and program.missing is not None:
                    ingredients.missing[program.name] = Missing(program.name, None, None, program.missing, by_hand=True)
                for auxiliary in load_kind(task.kind).auxiliary_models(task).values():
                    if auxiliary.name != PRETRAINED:
                        with naming_setting(task, auxiliary):
                            ingredients.auxiliary(auxiliary)
        for objective in self.trained:
            for name in models_read(objective):
                ingredients.auxiliary(AuxiliaryModel(name, "lm"))

    def _check(self) -> None:
        """Check lengths, examples and models: what would fail after hours of training fails here."""
        for loaded in self.trained:
            self._check_reads(loaded)
        for recipe, tasks in self.parts:
            if self.trained:
                check_recipe(self.model, recipe)
                self._check_selection(recipe)
                self._check_conversations(recipe)
            for task in tasks:
                kind = load_kind(task.kind)
                if not self.ingredients.look:
                    kind.check_access(task)
                data = self._data(task)
                for auxiliary in kind.auxiliary_models(task).values():
                    with naming_setting(task, auxiliary):
                        self.model.beside(auxiliary)
                kind.runtime.check(task, data, self.model)

    def _check_selection(self, recipe: Recipe) -> None:
        from emobench.objectives.combination import Combination

        for objective in (loaded.objective for loaded in self.trained):
            if recipe.select == "objective" and isinstance(objective, Combination) and objective.scheduled:
                raise ConfigError(
                    f"`recipe.select` is objective, but the weights of {objective} change over the training, so that "
                    "its validation losses cannot be compared; use --set recipe.select=mle or --set recipe.select=last."
                )

    def _check_conversations(self, recipe: Recipe) -> None:
        """Check that the first conversation can be rendered, and that each objective can be computed on such rows."""
        from emobench.objectives import ModelObjective

        if recipe.template == "none":
            return
        conversations = self.ingredients.conversations(recipe, "train")
        assert conversations is not None
        with suppress(EndWithinError):  # the training leaves such a row out
            FORMATS[recipe.template](self.model.tokenizer).tokens(conversations.conversation(0), recipe.responses)
        for objective in (loaded.objective for loaded in self.trained):
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

    def _data(self, task: Task) -> Any:
        """Return what a task reads. Where it is missing, the error names the tasks that may be left."""
        try:
            return self.ingredients.task_data(task)
        except (DataError, Missing) as error:
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
                if known_language(self._texts(recipe).values()) is None:
                    raise unknown_language(f"the corpus {recipe.corpus}")
            symbols = {word: symbol for symbol, word in enumerate([*oracle_words(), EOS])}
            if self.model.tokenizer.get_vocab() != symbols:
                raise ConfigError(
                    "target=language takes P from the oracle language, symbol by symbol, and "
                    f"{self.model.name} has other symbols; use --model tiny-oracle, or give a teacher: target=MODEL."
                )
        for name in names:
            rows = self.model.other(AuxiliaryModel(name, "lm")).facts.vocabulary
            own = self.model.facts.vocabulary
            if rows != own:
                raise ConfigError(
                    f"{loaded.objective}: the head of {name} has {rows} rows; expected {own}, the vocabulary of "
                    f"{self.model.name}. Take a model with the same tokenizer."
                )
