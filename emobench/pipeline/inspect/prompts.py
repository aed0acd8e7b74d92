"""What a model sees of a task's first examples: the prompts that a run scores, token by token, with their losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emobench.errors import ConfigError
from emobench.kinds.icl.answers import UNITS, answers, confidence, label_losses
from emobench.kinds.icl.losses import Sample
from emobench.kinds.icl.prompts.pieces import Piece, first_pieces, pieces
from emobench.kinds.icl.prompts.prompts import Draft, Prompt
from emobench.kinds.interface import Subject, evaluator
from emobench.models.quiet import quiet_libraries
from emobench.pipeline.execution.evaluate import Evaluator
from emobench.pipeline.execution.reporter import Reporter
from emobench.pipeline.execution.train import Trainer
from emobench.pipeline.planning.base_model import find_base_model
from emobench.pipeline.planning.machine import check_machine
from emobench.pipeline.planning.names import icl_task_of
from emobench.pipeline.planning.request import Request
from emobench.pipeline.stages.stage import Stages
from emobench.pipeline.stages.storage import require_writable
from emobench.registry import find_suite, suite_names
from emobench.tasks.icl import IclProtocol
from emobench.tasks.spec import Task

FIRST_IDS = 8


@dataclass(frozen=True, kw_only=True)
class ShownLabel:
    """One label of a prompt: its loss by the protocol's rule, the posterior, and the tokens of its whole prompt."""

    name: str
    text: str
    loss: float
    posterior: float
    tokens: int


@dataclass(frozen=True, kw_only=True)
class ShownPrompt:
    """One test example's prompt with the right label, and how each label scores."""

    id: str
    right: str
    answer: str
    tied: bool
    text: str
    """The whole prompt, as the tokenizer gets it."""
    tokens: int
    first_ids: tuple[int, ...]
    shots: tuple[tuple[str, str], ...]
    """(id, class) of each shot, the most similar first."""
    dropped: int
    cut: int
    labels: tuple[ShownLabel, ...]
    pieces: tuple[Piece, ...]


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
    task = _task(request, name)
    model = find_base_model(_model(request, task.name), request)
    kind = evaluator(task.kind)
    data = kind.load(task, data_dirs=request.data_dirs, offline=request.offline)
    kind.check(task, data, model)
    require_writable(request.runs, "--runs")
    stages = Stages(request.runs, note=reporter.note)
    trainer = Trainer(stages, reporter)
    with quiet_libraries():
        folder = trainer.made_folder(model) if model.made else None
        subject = Evaluator(stages, reporter, model, lambda: folder).subject(model.load(folder), {})
        shown = _shown(subject, task, data, count, ids)
    return ShownTask(
        task=task.name,
        protocol=task.protocol_id,
        model=model.name,
        unit=UNITS[task.protocol_as(IclProtocol).scorer],
        prompts=tuple(shown),
    )


def _task(request: Request, name: str) -> Task:
    task = icl_task_of(request, name)
    if task.protocol_as(IclProtocol).engine == "openicl":
        raise ConfigError("--set icl.engine=openicl scores whole data sets; drop it: the prompts are the same.")
    return task


def _model(request: Request, task: str) -> str:
    """Return the model that was asked for, or that of a suite with this task."""
    suites = (find_suite(name) for name in suite_names())
    found = request.model or next((s.model for s in suites if s.model and any(task in r.tasks for r in s.runs)), None)
    if found is None:
        raise ConfigError(
            f"The tokens and losses of {task} are those of a model; add --model NAME, see `emobench models list`."
        )
    return found


def _shown(subject: Subject, task: Task, data: Any, count: int, ids: Sequence[str]) -> list[ShownPrompt]:
    from emobench.kinds.icl.kind import drafts_of, prompts_of, score_prompts
    from emobench.kinds.icl.scoring.scoring import PromptScorer

    rules = task.protocol
    assert isinstance(rules, IclProtocol)
    drafts = _chosen(drafts_of(subject, task, data), count, ids, task.name)
    prompts = prompts_of(subject, task, drafts)
    scorer = PromptScorer(subject.model, subject.tokenizer, rules.engine)
    with subject.work(f"score {task.name}", "prompts"):
        samples = {
            sample.id: sample
            for batch in scorer.batches(prompts)
            for sample in score_prompts(scorer, subject, task, [(drafts[i], prompts[i]) for i in batch])
        }
    return [
        _prompt(rules, draft, prompt, samples[prompt.id], subject.tokenizer)
        for draft, prompt in zip(drafts, prompts, strict=True)
    ]


def _chosen(drafts: Sequence[Draft], count: int, ids: Sequence[str], task: str) -> list[Draft]:
    if not ids:
        return list(drafts[:count])
    found = []
    for text in ids:
        meant = [draft for draft in drafts if text and draft.example.id.startswith(text)]
        if not meant:
            raise ConfigError(
                f"--example {text}: no test example of {task} has an id that begins so; `emobench answers` names them, "
                f"such as {drafts[0].example.id}."
            )
        found += meant
    return list({draft.example.id: draft for draft in found}.values())


def _prompt(rules: IclProtocol, draft: Draft, prompt: Prompt, sample: Sample, tokenizer: Any) -> ShownPrompt:
    kept = Draft(example=draft.example, shots=draft.shots[: len(prompt.shots)])
    (answer,) = answers(rules, [sample])
    place = rules.ties.index(answer.right)
    losses = label_losses(rules, sample)
    labels = [
        ShownLabel(
            name=name, text=rules.labels[name], loss=loss, posterior=confidence(rules, sample, i), tokens=len(ids)
        )
        for i, (name, loss, ids) in enumerate(zip(rules.ties, losses, prompt.tokens, strict=True))
    ]
    return ShownPrompt(
        id=prompt.id,
        right=answer.right,
        answer=answer.answer,
        tied=answer.margin == 0,
        text=kept.texts(rules)[place][0],
        tokens=len(prompt.tokens[place]),
        first_ids=prompt.tokens[place][:FIRST_IDS],
        shots=tuple((shot.id, shot.label) for shot in kept.shots),
        dropped=prompt.dropped,
        cut=prompt.cut,
        labels=tuple(labels),
        pieces=tuple(first_pieces(pieces(kept, rules, tokenizer, place), len(prompt.tokens[place]))),
    )
