"""Names to work: everything is looked up and checked here, before any training starts.

A plan holds one `PlannedRun` for each objective, recipe of the suite, and seed: a training (none for a model as it is)
and the tasks that evaluate it. Their stages have keys, so that a plan also knows what is finished; where the harness
makes the base model, they have them once it is made, as its weights are part of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from emobench.config import PRETRAINED, to_plain
from emobench.data.texts import Texts, load_texts
from emobench.errors import ConfigError, DataError, ModelError, UnknownNameError
from emobench.kinds.auxiliary import AuxiliaryModel
from emobench.kinds.interface import Kind, TaskData
from emobench.models.folder import require_weights_here
from emobench.pipeline.planning.base_model import BaseModel, find_base_model
from emobench.pipeline.planning.machine import check_machine
from emobench.pipeline.planning.names import check_sections, model_of, objectives_of, parts_of, suite_of
from emobench.pipeline.planning.request import Request
from emobench.pipeline.stages.stage import Stage
from emobench.registry import LoadedObjective, load_kind
from emobench.tasks.spec import Suite, Task
from emobench.training.recipe import Recipe
from emobench.versions import minor_versions

if TYPE_CHECKING:
    from emobench.data.oracle import HiddenMarkovLanguage


@dataclass(frozen=True)
class PlannedTraining:
    """One training of one seed."""

    model: BaseModel
    objective: LoadedObjective
    recipe: Recipe
    seed: int
    texts: Mapping[str, Texts]
    """The train and validation splits of the recipe's corpus."""

    @cached_property
    def facts(self) -> Mapping[str, Any]:
        """All that determines the weights."""
        return training_facts(self.model.request, self.model, self.objective, self.recipe, self.seed, self.texts)

    @cached_property
    def stage(self) -> Stage:
        return Stage("train", self.facts)


@dataclass(frozen=True)
class PlannedTask:
    """One task of one run: of the model as it is, or of what a training made of it."""

    task: Task
    data: TaskData
    model: BaseModel
    training: PlannedTraining | None
    auxiliary: Mapping[str, AuxiliaryModel]
    """The models that it uses besides the evaluated one, by their part."""
    generation_facts: Mapping[str, Any]
    """What decides its generation besides rules and packages, as its kind says."""

    @property
    def kind(self) -> Kind:
        return load_kind(self.task.kind)

    @cached_property
    def subject(self) -> Mapping[str, Any]:
        """What identifies the model that is evaluated."""
        request = self.model.request
        facts = {"model": self.model.facts, "dtype": request.dtype, **_machine(request, "torch", "transformers")}
        return facts if self.training is None else {**facts, "training": self.training.stage.key}

    @cached_property
    def auxiliary_facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What identifies the auxiliary models, by their part."""
        return {part: self.model.known(found).facts for part, found in self.auxiliary.items()}

    @property
    def generation(self) -> Stage:
        facts = {**self._common, "rules": self.kind.generation_rules(self.task)}
        if packages := minor_versions(*self.kind.packages(self.task).generation):
            facts["packages"] = packages
        return Stage("generate", {**facts, **self.generation_facts})

    @property
    def scores(self) -> Stage:
        facts = {
            **self._common,
            "protocol": self.task.protocol_id,
            "rules": self.task.rules,
            "models": {p: dict(f) for p, f in self.auxiliary_facts.items() if self.auxiliary[p].stage == "score"},
            "generation": self.generation.key,
            "examples": 2,  # 2: with their sampling units
        }
        packages = minor_versions(*self.kind.packages(self.task).scores)
        return Stage("score", {**facts, "packages": packages} if packages else facts)

    @property
    def models(self) -> dict[str, Mapping[str, Any]]:
        """The models other than the base model that decide the results, by their part."""
        return {part: facts for part, facts in self.auxiliary_facts.items() if self.auxiliary[part].name != PRETRAINED}

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "subject": dict(self.subject),
            "task": {"name": self.task.name, "version": self.task.version, "kind": self.task.kind},
            "texts": self.data.fingerprint,
            **({"kind": dict(self.kind.identity)} if self.kind.identity else {}),
        }


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

    @property
    def label(self) -> str:
        return PRETRAINED if self.objective is None else repr(self.objective.objective)


@dataclass(frozen=True)
class Plan:
    """All that a request comes to."""

    request: Request
    suite: Suite
    model: BaseModel
    rows: tuple[PlannedRow, ...]
    recipes: tuple[Recipe, ...] = field(default=())

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


def training_facts(
    request: Request,
    model: BaseModel,
    objective: LoadedObjective,
    recipe: Recipe,
    seed: int,
    texts: Mapping[str, Texts],
) -> dict[str, Any]:
    """Return all that determines a training's weights."""
    return {
        "model": dict(model.facts),
        "from_scratch": request.from_scratch,
        "objective": {
            "name": objective.name,
            "version": objective.objective.version,
            "params": objective.objective.params,
            "source": objective.source_sha256,
            **({"packages": dict(objective.versions)} if objective.versions else {}),
            "reads": {name: dict(model.known(AuxiliaryModel(name, "lm")).facts) for name in models_read(objective)},
        },
        "recipe": to_plain(recipe),
        "texts": {split: texts[split].fingerprint for split in sorted(texts)},
        "seed": seed,
        "dtype": request.dtype,
        **_machine(request, "torch", "transformers", "accelerate", *(["peft"] if recipe.adapters is not None else [])),
    }


def models_read(objective: LoadedObjective) -> list[str]:
    """Return the models that an objective reads; the known language, which the texts identify, is none."""
    from emobench.objectives.dense import LANGUAGE

    return [name for name in objective.objective.reads if name != LANGUAGE]


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


def known_language(texts: Iterable[Texts]) -> HiddenMarkovLanguage | None:
    """Return the language that all of these texts were sampled from; None where nobody knows it."""
    from emobench.data.oracle import TEXT_COUNTS, oracle_language

    origins = {text.origin for text in texts}
    domain = next((d for d in TEXT_COUNTS if origins == {f"generated: oracle-{d}, version 1"}), None)
    return None if domain is None else oracle_language(domain)


def _machine(request: Request, *packages: str) -> dict[str, Any]:
    """Return the device class and the minor versions of the packages that compute."""
    return {"device": request.device.partition(":")[0], "packages": minor_versions("emobench", *packages)}


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
