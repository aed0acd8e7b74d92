"""What a model sees: a task's prompts with their losses, or as a task of lm-evaluation-harness; rows of a training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError
from emobench.data.conversations import FORMATS
from emobench.data.instruction_sets import Conversations
from emobench.data.packing import WEIGHTS
from emobench.kinds.interface import Kind, Subject
from emobench.kinds.views import LabelPrompts, ShownPrompt
from emobench.models.encoder import SentenceEncoder, find_encoder
from emobench.models.model import AuxiliaryModel
from emobench.models.quiet import quiet_libraries
from emobench.registry import find_suite, load_kind, recipe_names, suite_names
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.ingredients import Ingredients, base_model
from emobench.runs.planning.plan import check_machine
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import labelled_task_of, recipe_of
from emobench.runs.stages.stage import Stage, Stages, require_writable, storage_errors
from emobench.tasks.spec import Task


@dataclass(frozen=True, kw_only=True)
class ShownTask:
    """The prompts, and their task and model."""

    task: str
    protocol: str
    model: str
    unit: str
    prompts: tuple[ShownPrompt, ...]


@dataclass(frozen=True, kw_only=True)
class ShownToken:
    """One token of a row."""

    id: int
    text: str
    loss: bool


@dataclass(frozen=True, kw_only=True)
class ShownRow:
    """One conversation as a recipe trains on it, before it is packed with others."""

    recipe: str
    where: str
    tokens: tuple[ShownToken, ...]
    cut: int
    """Tokens at the end that are more than the recipe's max_length."""
    weight: float | list[Any] = 1.0
    """The conversation's weight in the loss."""


def show_prompts(request: Request, name: str, *, count: int, ids: Sequence[str], reporter: Reporter) -> ShownTask:
    """Return a task's first prompts, or those of the examples whose ids begin so, with the losses of each label.

    Shots are found as a run finds them, and kept in its folder. Raises a UserError for what a run would refuse, too.
    """
    check_machine(request)
    task, kind, prompts = _labelled(request, name)
    models = [request.model]
    for suite in () if request.model else map(find_suite, suite_names()):
        if any(task.name in run.tasks for run in suite.runs):
            models.append(suite.model)
    model = base_model(_first(models, task.name), request)
    data = kind.runtime.load(task, data_dirs=request.data_dirs, offline=request.offline)
    kind.runtime.check(task, data, model)
    require_writable(request.runs, "--runs")
    execution = Execution(request, model, reporter)
    with quiet_libraries():
        subject = execution.subject_of(execution.load(model), {})
        shown = tuple(prompts.show(subject, task, data, count, ids))
    unit = prompts.unit(task)
    return ShownTask(task=task.name, protocol=task.protocol_id, model=model.name, unit=unit, prompts=shown)


def _labelled(request: Request, name: str) -> tuple[Task, Kind, LabelPrompts]:
    task = labelled_task_of(request, name)
    kind = load_kind(task.kind)
    prompts = kind.view(LabelPrompts)
    assert prompts is not None
    return task, kind, prompts


def _first(models: Sequence[str | None], name: str) -> str:
    for model in models:
        if model is not None:
            return model
    raise ConfigError(
        f"The tokens and losses of {name} depend on a model; add --model NAME, see `emobench models list`."
    )


def export_task(request: Request, name: str, folder: Path, reporter: Reporter) -> list[Path]:
    """Write a task's YAML and rows for lm-evaluation-harness into a folder; return the files.

    Shots are found as a run finds them; no model is read. Raises a UserError for what a run would refuse.
    """
    task, kind, prompts = _labelled(request, name)
    data = kind.runtime.load(task, data_dirs=request.data_dirs, offline=request.offline)
    prompts.check_export(task, data)
    require_writable(request.runs, "--runs")
    stages = Stages(request.runs, note=reporter.note)

    def encoder(name: str) -> SentenceEncoder:
        return find_encoder(name, offline=request.offline, device=request.device)

    def keep(kind: str, facts: Mapping[str, Any], work: Any) -> Path:
        return stages.make(Stage(kind, facts), work)

    def other(model: AuxiliaryModel) -> Any:
        raise AssertionError(f"no model reads {model.name} where nothing is scored")

    subject = Subject(None, None, other, reporter.work, encoder, keep, facts={})
    with quiet_libraries(), storage_errors(folder, "DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        return prompts.export(subject, task, data, folder)


def show_training_rows(request: Request, name: str, *, count: int) -> list[ShownRow]:
    """Return the first rows of each recipe on conversations of a suite, or of one recipe. Raises a UserError."""
    runs: list[tuple[str, Mapping[str, Any]]] = [(name, {})]
    models = [request.model]
    if name in suite_names() or name not in recipe_names():
        suite = find_suite(name)
        runs = [(run.recipe, run.settings) for run in suite.runs]
        models.append(suite.model)
    tokenizer = None
    rows = []
    for recipe in (recipe_of(request, of_run, settings) for of_run, settings in runs):
        if recipe.template == "none":
            continue
        tokenizer = tokenizer or base_model(_first(models, name), request).tokenizer
        conversations = Ingredients(request, look=False).training_texts(recipe, "train")
        assert isinstance(conversations, Conversations)
        for i in range(min(count, len(conversations))):
            one = conversations.conversation(i)
            ids_T, counts_T = FORMATS[recipe.template](tokenizer).tokens(one, recipe.responses)
            tokens = []
            for token, counts in list(zip(ids_T, counts_T, strict=True))[: recipe.max_length]:
                tokens.append(ShownToken(id=token, text=tokenizer.decode([token]), loss=counts > 0))
            cut = len(ids_T) - len(tokens)
            row = ShownRow(recipe=recipe.name, where=one.where, tokens=tuple(tokens), cut=cut)
            if WEIGHTS in one.numbers:
                row = replace(row, weight=one.numbers[WEIGHTS].value)
            rows.append(row)
    if tokenizer is None:
        raise ConfigError(
            f"{name} trains on texts, where every token carries loss; expected a recipe on conversations, such as one "
            "with --set recipe.template=alpaca --set recipe.packing=rows."
        )
    return rows
