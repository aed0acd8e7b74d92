"""A task of kind icl for lm-evaluation-harness: its shots are found as a run finds them; no model is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emobench.kinds.interface import Subject
from emobench.kinds.views import LabelPrompts
from emobench.models.encoder import SentenceEncoder, find_encoder
from emobench.models.model import AuxiliaryModel
from emobench.models.quiet import quiet_libraries
from emobench.registry import load_kind
from emobench.runs.execution.reporter import Reporter
from emobench.runs.planning.request import Request
from emobench.runs.planning.resolve import labelled_task_of
from emobench.runs.stages.stage import Stage, Stages
from emobench.runs.stages.storage import require_writable, storage_errors


def export_task(request: Request, name: str, folder: Path, reporter: Reporter) -> list[Path]:
    """Write a task's YAML and rows into a folder; return the files. Raises a UserError for what a run would refuse."""
    task = labelled_task_of(request, name)
    kind = load_kind(task.kind)
    prompts = kind.view(LabelPrompts)
    assert prompts is not None
    data = kind.runtime.load(task, data_dirs=request.data_dirs, offline=request.offline)
    prompts.check_export(task, data)
    require_writable(request.runs, "--runs")
    subject = _subject(request, kind.auxiliary_models(task), reporter)
    with quiet_libraries(), storage_errors(folder, "DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        return prompts.export(subject, task, data, folder)


def _subject(request: Request, auxiliary: Mapping[str, AuxiliaryModel], reporter: Reporter) -> Subject:
    """Return what finds shots, without a model."""
    stages = Stages(request.runs, note=reporter.note)

    def other(model: AuxiliaryModel) -> Any:
        raise AssertionError(f"no model reads {model.name} where nothing is scored")

    def encoder(name: str) -> SentenceEncoder:
        return find_encoder(name, offline=request.offline, device=request.device)

    return Subject(
        model=None,
        tokenizer=None,
        other=other,
        work=reporter.work,
        sentence_encoder=encoder,
        keep=lambda kind, facts, work: stages.make(Stage(kind, facts), work),
        facts={},
    )
