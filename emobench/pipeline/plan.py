"""Names to work: everything is looked up and checked here, before any training starts.

A plan holds one `PlannedRun` for each objective, recipe of the suite, and seed: a training (none for a model as it is)
and the tasks that evaluate it. Their stages have keys already, so a plan also knows what is finished.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from emobench.config import to_plain
from emobench.data.texts import Texts, load_texts
from emobench.errors import ConfigError, UnknownNameError
from emobench.evaluation.kinds import evaluator
from emobench.pipeline.base_model import BaseModel, find_base_model
from emobench.pipeline.request import Request
from emobench.pipeline.stages import Stage
from emobench.registry import PRETRAINED, LoadedObjective, find_recipe, find_suite, find_task, load_objective
from emobench.tasks.spec import Suite, SuiteRun, Task
from emobench.training.recipe import Recipe


@dataclass(frozen=True)
class PlannedTraining:
    """One training of one seed."""

    model: BaseModel
    objective: LoadedObjective
    recipe: Recipe
    seed: int
    texts: Mapping[str, Texts]
    """The train and validation splits of the recipe's corpus."""
    facts: Mapping[str, Any]

    @property
    def stage(self) -> Stage:
        return Stage("train", self.facts)


@dataclass(frozen=True)
class PlannedTask:
    """One task of one run; `subject` are the facts of the model that is evaluated."""

    task: Task
    texts: Texts
    subject: Mapping[str, Any]

    @property
    def generation(self) -> Stage:
        facts = {**self._common, "rules": evaluator(self.task.kind).generation_rules(self.task)}
        return Stage("generate", facts)

    @property
    def scores(self) -> Stage:
        rules = {"protocol": self.task.protocol_id, "rules": to_plain(self.task.protocol)}
        return Stage(
            "score", {**self._common, **rules, "generation": self.generation.key, "mauve": version("mauve-text")}
        )

    @property
    def _common(self) -> dict[str, Any]:
        return {
            "subject": dict(self.subject),
            "task": {"name": self.task.name, "version": self.task.version, "kind": self.task.kind},
            "texts": self.texts.fingerprint,
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
    suite = _suite(request)
    wanted = request.objectives or suite.objectives
    if not wanted:
        raise ConfigError(
            f"{suite.name} names no objective of its own; add --objective NAME, see `emobench objectives list`."
        )
    if request.section("objective") and len(wanted) != 1:
        raise ConfigError(
            "--set objective.* needs exactly one --objective; with several, give parameters inline: "
            '--objective "tailr(gamma=0.2)".'
        )
    objectives = [None if text == PRETRAINED else load_objective(text, request.section("objective")) for text in wanted]
    _check_distinct(objectives)
    name = request.model or suite.model
    if name is None:
        raise ConfigError(f"{suite.name} names no model of its own; add --model NAME, see `emobench models list`.")
    model = find_base_model(name, request)
    splits = _Splits(request)
    recipes = [_recipe(request, run.recipe, run.settings) for run in suite.runs]
    tasks = _tasks(request, suite)
    trains = any(objective is not None for objective in objectives)
    for recipe in recipes if trains else ():
        model.check_length(recipe)
    for task in (task for group in tasks for task in group):
        # Names of encoders, lengths and examples: what would fail after hours of training fails here.
        evaluator(task.kind).check(task, splits.get(task.corpus, "test"), model)
    rows = tuple(_row(request, suite, model, objective, recipes, tasks, splits) for objective in objectives)
    return Plan(request, suite, model, rows, tuple(recipes))


def training_facts(
    request: Request,
    model: Mapping[str, Any],
    objective: LoadedObjective,
    recipe: Recipe,
    seed: int,
    texts: Mapping[str, Texts],
) -> dict[str, Any]:
    """Return all that determines a training's weights."""
    return {
        "model": dict(model),
        "from_scratch": request.from_scratch,
        "objective": {
            "name": objective.name,
            "version": objective.objective.version,
            "params": objective.objective.params,
            "source": objective.source_sha256,
        },
        "recipe": to_plain(recipe),
        "texts": {split: texts[split].fingerprint for split in sorted(texts)},
        "seed": seed,
        "dtype": request.dtype,
        "device": request.device.partition(":")[0],
        "packages": {name: ".".join(version(name).split(".")[:2]) for name in ("torch", "transformers")},
    }


def _suite(request: Request) -> Suite:
    if request.suite is not None:
        return find_suite(request.suite)
    assert request.recipe is not None
    recipe = find_recipe(request.recipe)
    return Suite(name=recipe.name, version=1, runs=(SuiteRun(recipe=recipe.name, tasks=()),))


class _Splits:
    """Splits of corpora, each read once."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._found: dict[tuple[str, str], Texts] = {}

    def get(self, corpus: str, split: str) -> Texts:
        if (corpus, split) not in self._found:
            request = self._request
            self._found[corpus, split] = load_texts(corpus, split, data_dirs=request.data_dirs, offline=request.offline)
        return self._found[corpus, split]


def _row(
    request: Request,
    suite: Suite,
    model: BaseModel,
    objective: LoadedObjective | None,
    recipes: list[Recipe],
    tasks: list[list[Task]],
    splits: _Splits,
) -> PlannedRow:
    runs = []
    for seed in (request.seeds or suite.seeds) if objective is not None else (0,):
        parts = []
        for recipe, group in zip(recipes, tasks, strict=True):
            training = None
            subject: Mapping[str, Any] = {"model": model.facts, "dtype": request.dtype}
            if objective is not None:
                texts = {split: splits.get(recipe.corpus, split) for split in ("train", "validation")}
                facts = training_facts(request, model.facts, objective, recipe, seed, texts)
                training = PlannedTraining(model, objective, recipe, seed, texts, facts)
                subject = {"training": training.stage.key, "pretrained": model.facts}
            parts.append(
                (training, tuple(PlannedTask(task, splits.get(task.corpus, "test"), subject) for task in group))
            )
        runs.append(PlannedRun(seed, tuple(parts)))
    return PlannedRow(objective, tuple(runs))


def _recipe(request: Request, name: str, settings: Mapping[str, Any]) -> Recipe:
    changes = dict(request.section("recipe"))
    corpus = request.word("corpus")
    if corpus is not None:
        if "corpus" in changes:
            raise ConfigError("--set corpus and --set recipe.corpus are both given; keep one.")
        changes["corpus"] = corpus
    if "name" in changes:
        raise ConfigError("--set recipe.name: the suite names the recipe; set the recipe's values instead.")
    return find_recipe(name, settings, changes)


def _tasks(request: Request, suite: Suite) -> list[list[Task]]:
    """Return the tasks of each recipe of the suite, with the request's changes to their rules."""
    wanted = request.words("tasks")
    known = [name for run in suite.runs for name in run.tasks]
    for name in wanted or ():
        if name not in known:
            raise UnknownNameError("task", name, known, where=f"Suite {suite.name}: ")
    return [[_task(request, name) for name in run.tasks if wanted is None or name in wanted] for run in suite.runs]


def _task(request: Request, name: str) -> Task:
    kind = find_task(name).kind
    changes = dict(request.section(kind)) if kind in ("generation", "oracle") else {}
    if request.limit is not None:
        changes["limit"] = request.limit
    task = find_task(name, protocol=request.word("protocol"), overrides=changes)
    corpus = request.word("corpus")
    # The oracle language is its own corpus: nothing else has a known distribution.
    return replace(task, corpus=corpus) if corpus is not None and kind == "generation" else task


def _check_distinct(objectives: list[LoadedObjective | None]) -> None:
    labels = [PRETRAINED if o is None else repr(o.objective) for o in objectives]
    for label in labels:
        if labels.count(label) > 1:
            raise ConfigError(f"--objective {label} is given twice; give each once, or with other parameters.")
