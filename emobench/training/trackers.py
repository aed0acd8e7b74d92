"""Trackers such as tensorboard, trackio and wandb: transformers' own callbacks, each training under a name of its own.

A tracker that fails is let go with one sentence: neither a training nor a result is lost to it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = "emobench"
TENSORBOARD = "TENSORBOARD_LOGGING_DIR"
"""Where transformers' callback writes, and the user's own wish for it."""


@dataclass(frozen=True, kw_only=True)
class Tracking:
    """Who follows one training, and under which name; `warn` says one sentence to the user."""

    trackers: tuple[str, ...]
    name: str
    folder: Path
    """Where tensorboard's files go, in a folder of the name, unless TENSORBOARD_LOGGING_DIR says where."""
    warn: Callable[[str], None]

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Let tensorboard's callback, if it is made in here, write to this training's folder.

        A run of wandb that began in here ends here: the next training would go on in it. So its final metrics are a
        second run of the same name; other trackers take up the first.
        """
        before, open_before = os.environ.get(TENSORBOARD), _open_run()
        os.environ[TENSORBOARD] = str(Path(before or self.folder).expanduser() / self.name)
        try:
            yield
        finally:
            del os.environ[TENSORBOARD]
            os.environ |= {TENSORBOARD: before} if before is not None else {}
            if _open_run() is not open_before:
                Guarded("wandb", sys.modules["wandb"], self.warn).finish()

    def guard(self, callbacks: list[Any]) -> list[Any]:
        """Return a training's callbacks with those of the trackers guarded."""
        names = {cls: name for name, cls in self.classes().items()}
        return [Guarded(names[type(c)], c, self.warn) if type(c) in names else c for c in callbacks]

    def classes(self) -> dict[str, type]:
        """Return transformers' callback class of each tracker."""
        from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

        return {name: INTEGRATION_TO_CALLBACK[name] for name in self.trackers}


def tracker_arguments(tracking: Tracking | None) -> dict[str, Any]:
    """Return the TrainingArguments for trackers; without any, none that the environment would turn on, either."""
    if tracking is None:
        return {"report_to": "none"}
    return {"report_to": list(tracking.trackers), "run_name": tracking.name, "project": PROJECT}


class Guarded:
    """A tracker's callback, made here if given as a class, that hears no more of the training once it failed."""

    def __init__(self, name: str, callback: Any, warn: Callable[[str], None]) -> None:
        self._name = name
        self._callback: Any = callback
        self._warn = warn
        if isinstance(callback, type):
            self._callback = self._guarded(callback)

    def __getattr__(self, event: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: (
            None if self._callback is None else self._guarded(getattr(self._callback, event), *args, **kwargs)
        )

    def _guarded(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except Exception as error:
            self._callback = None
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            self._warn(f"--track {self._name}: it failed and is told no more ({said}). Results are kept without it.")
            return None


def report_metrics(tracking: Tracking, metrics: Mapping[str, float], *, step: int, device: str) -> None:
    """Give the final metrics of a run (by <task>/<metric>) to its trackers, as evaluations at an optimizer step."""
    from transformers import TrainerControl, TrainerState, TrainingArguments

    folder = str(tracking.folder / tracking.name)
    args = TrainingArguments(output_dir=folder, use_cpu=device == "cpu", **tracker_arguments(tracking))
    state = TrainerState(global_step=step, is_local_process_zero=True, is_world_process_zero=True)
    control = TrainerControl()
    with tracking.followed():
        callbacks = [Guarded(name, cls, tracking.warn) for name, cls in tracking.classes().items()]
        # transformers shows what begins with eval_ apart from the training's curves.
        logs = {f"eval_{name}": value for name, value in metrics.items()}
        for callback in callbacks:
            callback.on_train_begin(args, state, control, model=None)
            callback.on_log(args, state, control, model=None, logs=dict(logs))
            callback.on_train_end(args, state, control, model=None)


def _open_run() -> Any:
    """Return wandb's run in progress in this process, if there is one."""
    return getattr(sys.modules.get("wandb"), "run", None)
