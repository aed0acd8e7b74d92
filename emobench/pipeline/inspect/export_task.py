"""A task of kind icl for lm-evaluation-harness: its shots are found as a run finds them; no model is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from emobench.kinds.interface import Beside, Subject
from emobench.models.encoder import find_encoder
from emobench.models.quiet import quiet_libraries
from emobench.pipeline.execution.reporter import Reporter
from emobench.pipeline.planning.names import icl_task_of
from emobench.pipeline.planning.request import Request
from emobench.pipeline.stages.stage import Stage, Stages
from emobench.pipeline.stages.storage import require_writable, storage_errors
from emobench.registry import load_retriever


def export_task(request: Request, name: str, folder: Path, reporter: Reporter) -> list[Path]:
    """Write a task's YAML and rows into a folder; return the files. Raises a UserError for what a run would refuse."""
    from emobench.kinds.icl.kind import drafts_of, load
    from emobench.kinds.icl.lm_eval_export import write_lm_eval_task
    from emobench.kinds.icl.retrieval.queries import check_pool

    task = icl_task_of(request, name)
    data = load(task, data_dirs=request.data_dirs, offline=request.offline)
    check_pool(task, data)
    require_writable(request.runs, "--runs")
    with quiet_libraries():
        drafts = drafts_of(_subject(request, reporter), task, data)
    with storage_errors(folder, "DIR"):
        folder.mkdir(parents=True, exist_ok=True)
        return write_lm_eval_task(task, data, drafts, folder)


def _subject(request: Request, reporter: Reporter) -> Subject:
    """Return what finds shots, without a model."""
    stages = Stages(request.runs, note=reporter.note)

    def other(beside: Beside) -> Any:
        raise AssertionError(f"no model reads {beside.name} where nothing is scored")

    return Subject(
        model=None,
        tokenizer=None,
        other=other,
        work=reporter.work,
        sentence_encoder=lambda name: find_encoder(name, offline=request.offline, device=request.device),
        retriever=load_retriever,
        keep=lambda kind, facts, work: stages.make(Stage(kind, facts), work),
        facts={},
    )
