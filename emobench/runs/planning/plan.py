"""From the names of a request to a plan, a graph of stages: all is looked up and checked before any training starts.

A plan has a `PlannedRun` for each objective and seed: its trainings (none for a model as it is) and the tasks that
evaluate each. Stages have keys, so that a plan also knows the finished ones. If the harness makes the base model, they
have keys once it is made, as its weights are part of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain

from emobench.core.errors import ConfigError, Missing, ModelError, UnknownNameError, first_line
from emobench.core.extras import require
from emobench.core.settings import PRETRAINED
from emobench.data.conversations import FORMATS, EndWithinError
from emobench.data.instruction_sets import Conversations
from emobench.data.labelled import LabelledData
from emobench.data.oracle.language import EOS, oracle_words
from emobench.data.texts import Texts
from emobench.inference.vllm.package import generating_program
from emobench.kinds.interface import KeyFacts
from emobench.models.device import check_device, is_here
from emobench.models.model import AuxiliaryModel, Model
from emobench.registry import LoadedObjective, load_kind
from emobench.runs.planning.ingredients import Ingredients, check_recipe
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import check_sections, objectives_of, parts_of, suite_of
from emobench.runs.stages.evaluate import PlannedTask, RunExamples
from emobench.runs.stages.stage import Stage
from emobench.runs.stages.train import PlannedTraining, known_language, models_read
from emobench.runs.stages.weights import WeightDigests
from emobench.tasks.spec import Suite, Task
from emobench.training.recipe import Recipe


@dataclass(frozen=True)
class PlannedRun:
    """One seed of one row: its trainings, one for each recipe of the suite, and the tasks of each.

    A checkpoint of another program has no training; `weights` are the digests of its base and of itself.
    """

    seed: int
    parts: tuple[tuple[PlannedTraining | None, tuple[PlannedTask, ...]], ...]
    weights: tuple[WeightDigests, ...] = ()

    def trainings(self) -> list[PlannedTraining]:
        """Return its trainings; none for a model as it is."""
        return [training for training, _ in self.parts if training is not None]

    def tasks(self) -> list[PlannedTask]:
        """Return its evaluations, in order."""
        return list(chain.from_iterable(tasks for _, tasks in self.parts))

    def stages(self) -> Iterator[Stage]:
        """Yield its trainings, and the generation and the scores of each task, in an order to make them in."""
        yield from self.weights
        for training, tasks in self.parts:
            if training is not None:
                yield training
            for task in tasks:
                yield task.generation
                yield task.scores

    def examples(self, command: str) -> RunExamples:
        """Return the stage of the run's per-example results, which the command recorded."""
        return RunExamples(self.tasks(), [*self.weights, *self.trainings()], command)


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
    """All stages of a request: the same for a run and for a dry run, which may lack files."""

    request: Request
    suite: Suite
    model: Model
    rows: tuple[PlannedRow, ...]
    ingredients: Ingredients
    recipes: tuple[Recipe, ...] = ()
    ready: bool = True
    """Whether all that it needs is here and was checked, so that it can run; else it can only be shown."""

    def rows_and_runs(self) -> Iterator[tuple[PlannedRow, PlannedRun]]:
        """Yield each run with its row, in order."""
        for row in self.rows:
            for run in row.runs:
                yield row, run

    def trainings(self) -> list[PlannedTraining]:
        """Return each training once, in order."""
        return list(chain.from_iterable(run.trainings() for _, run in self.rows_and_runs()))

    def evaluated(self) -> list[PlannedTask]:
        """Return the tasks of the first run; every run has the same."""
        return self.rows[0].runs[0].tasks()

    def warnings(self) -> list[str]:
        """Return what a reader has to know before the trainings start."""
        warnings, trained = [], [row for row in self.rows if row.objective is not None]
        for recipe in self.recipes:
            if recipe.weight_dtype != "float32" and recipe.adapters is None and trained:
                warnings.append(
                    f"Warning: recipe {recipe.name} trains {recipe.weight_dtype} weights (recipe.weight_dtype), which "
                    "rounds most small updates away. Drop the setting to train float32 weights."
                )
        return [*warnings, *self._parts_of_data()]

    def _parts_of_data(self) -> list[str]:
        """Return which parts of the data the splits are, for data without files of their own for each split."""
        parts: dict[str, dict[str, None]] = {}
        read = [planned.data for planned in self.evaluated()]
        for training in self.trainings():
            read[:0] = training.texts.values()
        for texts in read:
            if isinstance(texts, Texts) and texts.note:
                part = f"{texts.split} is {texts.note} ({len(texts):,} rows)"
                parts.setdefault(texts.corpus, {})[part] = None
            elif isinstance(texts, LabelledData) and texts.note:
                parts.setdefault(texts.name, {})[texts.note] = None
        return [f"Splits of {name}: {'; '.join(splits)}." for name, splits in parts.items()]

    def stages(self) -> list[Stage]:
        """Return the whole graph, each stage once and after those that it needs."""
        ordered: dict[int, Stage] = {}

        def add(stage: Stage) -> None:
            if id(stage) not in ordered:
                for need in stage.needs:
                    add(need)
                ordered[id(stage)] = stage

        for stage in self.model.stages:
            add(stage)
        for _, run in self.rows_and_runs():
            add(run.examples(self.request.command))
        return list(ordered.values())


def make_plan(request: Request, *, look: bool = False, check: bool = True, known: Ingredients | None = None) -> Plan:
    """Look up every name of a request and check it; raises a UserError for the first thing that is wrong.

    See `Planner.plan`.
    """
    return Planner(request).plan(look=look, check=check, known=known)


def check_machine(request: Request) -> None:
    """Raise a UserError for a device that is missing, or a tracker that is unknown or cannot be started."""
    check_device(request.device)
    if not request.trackers:
        return
    from transformers.integrations import integration_utils as trackers

    known = trackers.INTEGRATION_TO_CALLBACK
    for name in request.trackers:
        if name not in known:
            raise UnknownNameError("tracker", name, known, where="--track: ")
        reason = f"pip install {name}, or 'emobench[trackers]' for tensorboard, trackio and wandb"
        if name in trackers.get_available_reporting_integrations():
            try:
                known[name]()
                continue
            except Exception as error:
                reason = first_line(error)
        raise ConfigError(f"--track {name} cannot be started: {reason}.")


@contextmanager
def naming_setting(task: Task, auxiliary: AuxiliaryModel) -> Iterator[None]:
    """Begin the error of an auxiliary model with the setting that it is from."""
    try:
        yield
    except (Missing, ModelError, UnknownNameError) as error:
        where = f"--set {auxiliary.setting}={auxiliary.name}"
        if auxiliary.setting.removeprefix(f"{task.kind}.") not in task.changes:
            where += f", by protocol {task.protocol_name} of task {task.name}"
        instead = f" Or {auxiliary.instead}." if auxiliary.instead else ""
        raise ModelError(f"{where}: {str(error).removeprefix(f'--model {auxiliary.name}: ')}{instead}") from None


class Planner:
    """The names of a request, looked up once; its plan may be made to be shown, and then to be run."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.suite = suite_of(request)
        self.objectives = objectives_of(request, self.suite)
        self.seeds = request.seeds or self.suite.seeds
        self.parts = parts_of(request, self.suite)
        self.trained: list[LoadedObjective] = []
        """The objectives that the plan trains with."""
        if not request.declared:
            self.trained += [objective for objective in self.objectives if objective is not None]
        check_sections(request, self.parts, trains=bool(self.trained))
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
        for recipe, tasks in self.parts:
            template = recipe.template if self.trained and request.recorded is None else None  # repeated as it was
            for task in tasks:
                trusted = request.trust_remote_code
                load_kind(task.kind).check_use(task, template=template, trusted=trusted, dry=look)
        there = not look or is_here(request.device)
        if there:
            check_machine(request)
        self.ingredients = self._known = Ingredients(request, look=look, known=known or self._known)
        name = request.model or self.suite.model
        if name is None:
            raise ConfigError(f"{self.suite.name} names no model; add --model NAME, see `emobench models list`.")
        if request.declared:
            self.model = self.ingredients.checkpoint(name, request.base or "")
        else:
            self.model = self.ingredients.base_model(name)
            if request.base is not None and self.model.is_local and self.model.source.adapter is None:
                raise ConfigError(
                    f"--from names the base of an adapter or of a checkpoint whose training is declared; {name} is no "
                    "adapter. Add --trained-with NAME, or drop --from."
                )
        if look:
            self._look()
        ready = check and there and not self.ingredients.missing
        if ready:
            self._check()
        uses: dict[str, KeyFacts] = {}
        for _, tasks in self.parts:
            for task in tasks:
                uses[task.name] = load_kind(task.kind).key_facts(task, self.model if ready else None)
        asked = request.objectives
        if not asked or request.section("objective"):
            asked = []
            for one in self.objectives:
                asked.append(PRETRAINED if one is None else repr(one.objective))
        rows = []
        for objective, text in zip(self.objectives, asked, strict=True):
            seeds = (0,) if objective is None else self.seeds
            rows.append(PlannedRow(objective, tuple(self._run(objective, seed, uses) for seed in seeds), text))
        recipes = tuple(recipe for recipe, _ in self.parts)
        return Plan(request, self.suite, self.model, tuple(rows), self.ingredients, recipes, ready)

    def _run(self, objective: LoadedObjective | None, seed: int, uses: Mapping[str, KeyFacts]) -> PlannedRun:
        evaluated = self.model.evaluated()
        parts = []
        for recipe, tasks in self.parts:
            training = None
            if self.trained and objective is not None:
                training = PlannedTraining(self.model, objective, recipe, seed, self._texts(recipe))
            planned = []
            for task in tasks:
                data = self.ingredients.task_data(task)
                planned.append(PlannedTask(task, data, evaluated, training, uses[task.name]))
            parts.append((training, tuple(planned)))
        weights = ()
        if self.model.trained_from is not None:
            weights = (WeightDigests(self.model.trained_from), WeightDigests(self.model))
        return PlannedRun(seed, tuple(parts), weights)

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
                facts = load_kind(task.kind).key_facts(task, None)
                program = generating_program(facts.backend, self.request.device)
                if program is not None and program.missing is not None:
                    ingredients.missing[program.name] = Missing(program.name, None, None, program.missing, by_hand=True)
                for auxiliary in facts.models.values():
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
                self._check_objectives(recipe)
            for task in tasks:
                kind = load_kind(task.kind)
                data = self.ingredients.task_data(task)
                for auxiliary in kind.key_facts(task, None).models.values():
                    with naming_setting(task, auxiliary):
                        self.model.beside(auxiliary)
                kind.runtime.check(task, data, self.model)

    def _check_objectives(self, recipe: Recipe) -> None:
        """Check that the first conversation can be rendered, and that each objective can be computed by a recipe."""
        from emobench.objectives import ModelObjective
        from emobench.objectives.base import OLD

        if recipe.template != "none":
            conversations = self.ingredients.training_texts(recipe, "train")
            assert isinstance(conversations, Conversations)
            with suppress(EndWithinError):  # the training leaves such a row out
                FORMATS[recipe.template](self.model.tokenizer).tokens(conversations.conversation(0), recipe.responses)
        for objective in (loaded.objective for loaded in self.trained):
            if recipe.select == "objective" and objective.scheduled:
                raise ConfigError(
                    f"`recipe.select` is objective, but the loss of {objective} changes over the training, so that "
                    "its validation losses cannot be compared; use --set recipe.select=mle or --set recipe.select=last."
                )
            if recipe.weights and isinstance(objective, ModelObjective):
                raise ConfigError(
                    f"`recipe.weights` is {recipe.weights}, and {objective.name} weighs its own units; drop it, or "
                    "take an objective on tokens."
                )
            absent = ",".join(sorted(objective.columns - set(recipe.columns)))
            if absent:
                raise ConfigError(
                    f"{objective} reads {absent} of each token, from the data; add --set recipe.columns=[{absent}], "
                    "and take a corpus that has these fields."
                )
            if recipe.select == "objective" and objective.columns:
                raise ConfigError(
                    f"`recipe.select` is objective, and {objective} reads columns, which validation texts lack; use "
                    "--set recipe.select=mle or --set recipe.select=last."
                )
            computed = objective.side_names - objective.columns - {OLD}
            if recipe.packing == "conversations" and (isinstance(objective, ModelObjective) or computed):
                raise ConfigError(
                    f"`recipe.packing` is conversations, and {objective.name} reads whole rows, in which it would mix "
                    "conversations; set recipe.packing=rows."
                )

    def _check_reads(self, loaded: LoadedObjective) -> None:
        """Check the models whose heads an objective takes its costs from, its teachers, and the known language."""
        import torch

        from emobench.models.head import token_count, token_texts
        from emobench.objectives.cost import ground_cost
        from emobench.objectives.dense import LANGUAGE
        from emobench.training.context import no_pretrained_head, unknown_language

        names = models_read(loaded)
        if self.request.from_scratch and PRETRAINED in names:
            raise no_pretrained_head()
        others = set(loaded.objective.reads) - set(names)
        if LANGUAGE in others:
            for recipe, _ in self.parts:
                if known_language(self._texts(recipe).values()) is None:
                    raise unknown_language(f"the corpus {recipe.corpus}")
            symbols = {word: symbol for symbol, word in enumerate([*oracle_words(), EOS])}
            if self.model.tokenizer.get_vocab() != symbols:
                raise ConfigError(
                    "target=language takes P from the oracle language, symbol by symbol, and "
                    f"{self.model.name} has other symbols; use --model tiny-oracle, or give a teacher: target=MODEL."
                )
        for source in others - {LANGUAGE}:
            tokens = min(self.model.facts.vocabulary, token_count(self.model.tokenizer))
            ground_cost(source, token_texts(self.model.tokenizer, tokens), torch.empty(0))
        for name in names:
            rows = self.model.other(AuxiliaryModel(name, "lm")).facts.vocabulary
            own = self.model.facts.vocabulary
            if rows != own:
                raise ConfigError(
                    f"{loaded.objective}: the head of {name} has {rows} rows; expected {own}, the vocabulary of "
                    f"{self.model.name}. Take a model with the same tokenizer."
                )
