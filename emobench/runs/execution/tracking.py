"""Trackers: the name of each training there, and at the end the metrics of its run."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emobench.core.settings import PRETRAINED
from emobench.runs.stages.evaluate import Evaluation, merged_scores
from emobench.runs.stages.train import PlannedTraining
from emobench.training.trackers import TENSORBOARD, Tracking, report_metrics

if TYPE_CHECKING:
    from emobench.runs.execution.execution import Execution
    from emobench.runs.planning.plan import PlannedRow

FOLDER = "tensorboard"
"""In the runs folder: `tensorboard --logdir runs/tensorboard` shows all trainings."""


def tracking_of(planned: PlannedTraining, execution: Execution) -> Tracking:
    """Return the tracking of a training; its key tells it from others of the same objective and seed."""
    words = (planned.model.name, str(planned.objective.objective), f"seed{planned.seed}", planned.key[:6])
    return _tracking(words, execution)


def track_metrics(row: PlannedRow, evaluations: Sequence[Sequence[Evaluation]], execution: Execution) -> None:
    """Give the metrics of each of a row's runs to the trackers, in the curves of the training they belong to."""
    if not execution.request.trackers:
        return
    for run, of_run in zip(row.runs, evaluations, strict=True):
        left = list(of_run)
        for training, tasks in run.parts:
            own, left = left[: len(tasks)], left[len(tasks) :]
            if training is None:
                step, words = 0, (execution.model.name, PRETRAINED, *(evaluation.key[:6] for evaluation in own[:1]))
                tracking = _tracking(words, execution)
            else:
                summary = execution.stages.folder(training) / "training.json"
                step, tracking = json.loads(summary.read_text())["selected_step"], tracking_of(training, execution)
            if metrics := {name: score.value for name, score in merged_scores(own).items()}:
                report_metrics(tracking, metrics, step=step, device=execution.request.device)


def say_where(execution: Execution) -> None:
    """Say where tensorboard wrote."""
    folder = Path(os.environ.get(TENSORBOARD) or execution.stages.root / FOLDER).expanduser()
    if "tensorboard" in execution.request.trackers and folder.is_dir():
        execution.reporter.note(
            f"--track tensorboard: in {folder}; see it with `tensorboard --logdir {shlex.quote(str(folder))}`"
        )


def _tracking(words: Sequence[str], execution: Execution) -> Tracking:
    name = re.sub(r"[^\w.=()+-]+", "_", "-".join(words))[:120]
    folder = execution.stages.root.resolve() / FOLDER
    return Tracking(trackers=execution.request.trackers, name=name, folder=folder, warn=execution.reporter.note)
