"""What a model sees of a task's first examples: the prompts that a run scores, token by token, with their losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emobench.core.errors import ConfigError
from emobench.kinds.views import LabelPrompts, ShownPrompt
from emobench.models.quiet import quiet_libraries
from emobench.registry import find_suite, load_kind, suite_names
from emobench.runs.execution.execution import Execution
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.find_model import base_model
from emobench.runs.planning.make_plan import check_machine
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import labelled_task_of
from emobench.runs.stages.storage import require_writable


@dataclass(frozen=True, kw_only=True)
class ShownTask:
    """The prompts, and what they are of."""

    task: str
    protocol: str
    model: str
    unit: str
    prompts: tuple[ShownPrompt, ...]


def show_prompts(request: Request, name: str, *, count: int, ids: Sequence[str], reporter: Reporter) -> ShownTask:
    """Return a task's first prompts, or those of the examples whose ids begin so, with the losses of each label.

    Shots are found as a run finds them, and kept in its folder. Raises a UserError for what a run would refuse, too.
    """
    check_machine(request)
    task = labelled_task_of(request, name)
    kind = load_kind(task.kind)
    prompts = kind.view(LabelPrompts)
    assert prompts is not None
    prompts.check_shown(task)
    model = base_model(_model(request, task.name), request)
    data = kind.runtime.load(task, data_dirs=request.data_dirs, offline=request.offline)
    kind.runtime.check(task, data, model)
    require_writable(request.runs, "--runs")
    execution = Execution(request, model, reporter)
    with quiet_libraries():
        subject = execution.subject_of(execution.load(model), {})
        shown = prompts.show(subject, task, data, count, ids)
    return ShownTask(
        task=task.name,
        protocol=task.protocol_id,
        model=model.name,
        unit=prompts.unit(task),
        prompts=tuple(shown),
    )


def _model(request: Request, task: str) -> str:
    """Return the model that was asked for, or that of a suite with this task."""
    suites = (find_suite(name) for name in suite_names())
    found = request.model or next((s.model for s in suites if s.model and any(task in r.tasks for r in s.runs)), None)
    if found is None:
        raise ConfigError(
            f"The tokens and losses of {task} are those of a model; add --model NAME, see `emobench models list`."
        )
    return found
