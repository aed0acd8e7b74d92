"""Trackers such as tensorboard, trackio and wandb, through transformers' callbacks.

Each training has a name of its own, and one run in each tracker: the metrics of its evaluation, and its steps after an
interruption, continue the run that has its curves. tensorboard and trackio continue a run by its name.

If a tracker fails, one warning is printed and the training goes on without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from emobench.core.settings import content_hash

PROJECT = "emobench"
TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
"""The folder to which transformers' callback writes. The user may set it."""


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """The trackers of one training and its name in them. `warn` prints a sentence for the user."""

    trackers: tuple[str, ...]
    name: str
    folder: Path
    """tensorboard writes to FOLDER/NAME, unless TENSORBOARD_LOGGING_DIR is set."""
    warn: Callable[[str], None]

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Let the callbacks that are created inside this context continue the runs of this training.

        A wandb run that starts inside also ends here: the next training would otherwise continue it.
        """
        from accelerate.utils import patch_environment  # it imports torch

        open_before = _open_run()
        try:
            with patch_environment(**self._variables()):
                yield
        finally:
            if _open_run() is not open_before:
                Guarded("wandb", sys.modules["wandb"], self.warn).finish()

    def _variables(self) -> dict[str, str]:
        """Return the environment by which trackers know the run of this training."""
        folder = Path(os.environ.get(TENSORBOARD) or self.folder).expanduser()
        variables = {
            TENSORBOARD: str(folder / self.name),
            "WANDB_PROJECT": os.environ.get("WANDB_PROJECT", PROJECT),
            "WANDB_RESUME": "allow",
            "WANDB_RUN_ID": content_hash(self.name)[:16],
        }
        if "mlflow" in self.trackers:
            mlflow = Guarded("mlflow", import_module("mlflow"), self.warn)
            named = f"attributes.run_name = '{self.name}'"
            for run in mlflow.search_runs(filter_string=named, max_results=1, output_format="list") or ():
                # mlflow would refuse parameters that differ, such as a folder.
                variables |= {"MLFLOW_RUN_ID": run.info.run_id, "MLFLOW_MAX_LOG_PARAMS": "0"}
        return variables

    def guard(self, callbacks: list[Any]) -> list[Any]:
        """Return a training's callbacks, with each tracker's callback wrapped in `Guarded`."""
        names = {cls: name for name, cls in self.classes().items()}
        guarded: list[Any] = []
        for callback in callbacks:
            name = names.get(type(callback))
            guarded.append(Guarded(name, callback, self.warn) if name else callback)
        return guarded

    def classes(self) -> dict[str, type]:
        """Return transformers' callback class of each tracker."""
        from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

        return {name: INTEGRATION_TO_CALLBACK[name] for name in self.trackers}


def tracker_arguments(tracking: Tracking | None) -> dict[str, Any]:
    """Return the TrainingArguments for trackers. None: no tracker, not even one that the environment enables."""
    if tracking is None:
        return {"report_to": "none"}
    return {"report_to": list(tracking.trackers), "run_name": tracking.name, "project": PROJECT}


class Guarded:
    """A tracker's callback (or its class) that is not called again after it failed."""

    def __init__(self, name: str, callback: Any, warn: Callable[[str], None]) -> None:
        self._name = name
        self._callback: Any = callback
        self._warn = warn
        if isinstance(callback, type):
            self._callback = self._guarded(callback)

    def __getattr__(self, event: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._callback is not None:
                return self._guarded(getattr(self._callback, event), *args, **kwargs)
            return None

        return call

    def _guarded(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            self._callback = None
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._warn(
                f"--track {self._name}: it failed and is not called again ({reason}). Results are kept without it."
            )
            return None


def report_metrics(tracking: Tracking, metrics: Mapping[str, float], *, step: int, device: str) -> None:
    """Send the final metrics of a run (by <task>/<metric>) to its trackers, as evaluations at an optimizer step."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    folder = str(tracking.folder / tracking.name)
    args = TrainingArguments(output_dir=folder, use_cpu=device == "cpu", **tracker_arguments(tracking))
    state = TrainerState(global_step=step, is_local_process_zero=True, is_world_process_zero=True)
    control = TrainerControl()
    with tracking.followed():
        # transformers shows names that begin with eval_ separately from the training's curves.
        logs = {f"eval_{name}": value for name, value in metrics.items()}
        for name, cls in tracking.classes().items():
            callback = Guarded(name, cls, tracking.warn)
            callback.on_train_begin(args, state, control, model=None)
            callback.on_log(args, state, control, model=None, logs=dict(logs))
            callback.on_train_end(args, state, control, model=None)


def _open_run() -> Any:
    """Return the wandb run of this process that is in progress, or None."""
    return getattr(sys.modules.get("wandb"), "run", None)
