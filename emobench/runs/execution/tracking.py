"""What trackers are told: the name of each training, and at the end the metrics of its run."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from emobench.core.settings import PRETRAINED
from emobench.runs.execution.reporter import Reporter
from emobench.runs.stages.evaluate import Evaluation
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.train import PlannedTraining
from emobench.training.trackers import TENSORBOARD, Tracking, report_metrics

if TYPE_CHECKING:
    from emobench.runs.planning.plan import Plan, PlannedRow

FOLDER = "tensorboard"
"""In the runs folder: `tensorboard --logdir runs/tensorboard` shows all trainings."""


def tracking_of(planned: PlannedTraining, trackers: tuple[str, ...], stages: Stages, reporter: Reporter) -> Tracking:
    """Return who follows a training; its key keeps it apart from others of the same objective and seed."""
    words = (planned.model.name, str(planned.objective.objective), f"seed{planned.seed}", planned.key[:6])
    return _tracking(trackers, words, stages, reporter)


def track_metrics(
    plan: Plan, row: PlannedRow, evaluations: Sequence[Sequence[Evaluation]], stages: Stages, reporter: Reporter
) -> None:
    """Give the metrics of each of a row's runs to the trackers, in the curves of the training they belong to."""
    trackers = plan.request.trackers
    for run, of_run in zip(row.runs, evaluations, strict=True) if trackers else ():
        left = iter(of_run)
        for training, tasks in run.parts:
            own = [next(left) for _ in tasks]
            metrics = {name: score.value for evaluation in own for name, score in evaluation.scores().items()}
            step = 0
            if training is None:
                words = (plan.model.name, PRETRAINED, *(evaluation.key[:6] for evaluation in own[:1]))
                tracking = _tracking(trackers, words, stages, reporter)
            else:
                step = json.loads((stages.folder(training) / "training.json").read_text())["selected_step"]
                tracking = tracking_of(training, trackers, stages, reporter)
            if metrics:
                report_metrics(tracking, metrics, step=step, device=plan.request.device)


def say_where(plan: Plan, stages: Stages, reporter: Reporter) -> None:
    """Say where tensorboard wrote."""
    folder = Path(os.environ.get(TENSORBOARD) or stages.root / FOLDER).expanduser()
    if "tensorboard" in plan.request.trackers and folder.is_dir():
        reporter.note(
            f"--track tensorboard: in {folder}; see it with `tensorboard --logdir {shlex.quote(str(folder))}`"
        )


def _tracking(trackers: tuple[str, ...], words: Sequence[str], stages: Stages, reporter: Reporter) -> Tracking:
    name = re.sub(r"[^\w.=()+-]+", "_", "-".join(words))[:120]
    return Tracking(trackers=trackers, name=name, folder=stages.root.resolve() / FOLDER, warn=reporter.note)
