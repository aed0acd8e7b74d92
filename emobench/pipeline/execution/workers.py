"""Processes that make the stages of a plan at once, each on a device of its own.

A worker is `python -m emobench.pipeline.worker`: it reads keys of planned stages and makes them, as `emobench stage run
KEY` does. What is scheduled here is only which worker makes what: a stage is made once, under its lock, and read from
the folder of runs, so that results do not depend on the number of workers.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from emobench.errors import EmobenchError, RunError, UserError
from emobench.models.device import Place
from emobench.pipeline.execution.reporter import Progress, Reporter
from emobench.pipeline.planning.plan import Plan, PlannedRun
from emobench.pipeline.planning.planned import PlannedTraining
from emobench.pipeline.stages.stage import Stages

BASE = "the model as it is"
LAST_LINES = 15
"""Of what a worker printed, in the error about its end."""


@dataclass(frozen=True)
class Job:
    """A stage that is to be made."""

    key: str
    model: str
    """The key of the training whose model it evaluates or makes; `BASE` for the model as it is."""
    trains: bool
    run: str
    """Its row and seed, to be shown."""
    title: str


class Workers:
    """Makes what is not finished of a plan, in the background, until `close`; a context manager.

    A failed stage fails those that need it, and the others go on.
    """

    def __init__(self, places: Sequence[Place], plan: Plan, stages: Stages, reporter: Reporter) -> None:
        self._stages = stages
        self._changed = threading.Condition()
        self._waiting = list(_jobs(plan, stages))
        self._trainings = {job.key for job in self._waiting if job.trains}
        self._settled: dict[str, EmobenchError | None] = {}
        self._closed = False
        self._processes: list[_Process] = []
        self._keys = {job.key for job in self._waiting}
        needed = places[: len(self._waiting)]
        self._threads = [threading.Thread(target=self._serve, args=(p, reporter), daemon=True) for p in needed]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop what is still in progress: trainings after their step, with a checkpoint; a second Ctrl-C, at once."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for process in self._processes:
                process.terminate()
        try:
            for thread in self._threads:
                thread.join()
        except KeyboardInterrupt:
            for process in self._processes:
                process.kill()
            raise

    def wait(self, run: PlannedRun) -> None:
        """Return when all stages of a run are made; raises the error of the first one that failed."""
        keys = [planned.stage.key for planned in run.stages() if planned.stage.key in self._keys]
        with self._changed:
            self._changed.wait_for(lambda: all(key in self._settled for key in keys))
        for key in keys:
            if (error := self._settled[key]) is not None:
                raise error

    def _serve(self, place: Place, reporter: Reporter) -> None:
        shown, process, model, run = reporter.worker(place.name), None, "", ""
        try:
            while (job := self._next(model)) is not None:
                if process is None:
                    process = self._started(place)
                if job.run != run:
                    shown.note(job.run)
                error = process.make(job, shown)
                if process.ended:
                    process.finish()
                    process = None
                self._settle(job, error)
                model, run = job.model, job.run
        finally:
            if process is not None:
                process.finish()

    def _started(self, place: Place) -> _Process:
        process = _Process(place, self._stages)
        with self._changed:
            self._processes.append(process)
            if self._closed:
                process.terminate()
        return process

    def _next(self, model: str) -> Job | None:
        """Return what a worker makes next, or None when nothing is left for it; waits until something is ready.

        It goes on with the model that it has loaded; else trainings come first, as others wait for them.
        """
        with self._changed:
            while not self._closed and self._waiting:
                self._fail_dependants()
                ready = [job for job in self._waiting if self._is_ready(job)]
                if ready:
                    job = min(ready, key=lambda job: (job.model != model, not job.trains))
                    self._waiting.remove(job)
                    return job
                if self._waiting:
                    self._changed.wait()
            return None

    def _is_ready(self, job: Job) -> bool:
        return job.trains or job.model not in self._trainings or job.model in self._settled

    def _fail_dependants(self) -> None:
        for job in list(self._waiting):
            error = None if job.trains else self._settled.get(job.model)
            if error is not None:
                self._waiting.remove(job)
                self._settled[job.key] = error
        self._changed.notify_all()

    def _settle(self, job: Job, error: EmobenchError | None) -> None:
        with self._changed:
            self._settled[job.key] = error
            self._changed.notify_all()


def _jobs(plan: Plan, stages: Stages) -> Iterator[Job]:
    """Yield what is not finished, each stage once. A generation is made with its scores."""
    seen = set()
    for row in plan.rows:
        for run in row.runs:
            for planned in run.stages():
                stage, work = planned.stage, planned.work
                if stage.kind == "generate" or stage.key in seen or stages.is_finished(stage):
                    continue
                seen.add(stage.key)
                trains = isinstance(work, PlannedTraining)
                training = work if trains else getattr(work, "training", None)
                model = BASE if training is None else training.stage.key
                title = "its training" if trains else work.task.name  # type: ignore[union-attr]
                label = row.label if row.objective is None else f"{row.label}, seed {run.seed}"
                yield Job(stage.key, model, trains, label, title)


class _Process:
    """A worker: one line with a key goes in, and lines of JSON come out until the stage is made."""

    def __init__(self, place: Place, stages: Stages) -> None:
        self._place = place
        command = [sys.executable, "-m", "emobench.pipeline.worker", str(stages.root)]
        # A session of its own: Ctrl-C reaches this process alone, which then stops the workers.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **place.environment},
            start_new_session=True,
        )
        keys, answers, errors = self._process.stdin, self._process.stdout, self._process.stderr
        assert keys is not None
        assert answers is not None
        assert errors is not None
        self._keys, self._answers, self._errors = keys, answers, errors
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def make(self, job: Job, reporter: Reporter) -> EmobenchError | None:
        """Make a stage, telling the reporter what the worker tells; return the error if it failed."""
        with suppress(OSError):  # it has ended, which is seen below
            self._keys.write(f"{job.key}\n")
            self._keys.flush()
        with _Shown(reporter) as shown:
            for event in self._events():
                match event.pop("event"):
                    case "made":
                        return None
                    case "failed":
                        kind = UserError if event["code"] == UserError.exit_code else RunError
                        return kind(f"{job.run}, {job.title}: {event['text']}")
                    case name:
                        shown.show(name, event)
        return self._death(job)

    def terminate(self) -> None:
        """Let it stop as at Ctrl-C."""
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def finish(self) -> None:
        """Let it end, as it has nothing to do, and close its pipes."""
        with suppress(OSError):
            self._keys.close()
        self._process.wait()
        self._reader.join()
        self._answers.close()
        self._errors.close()

    def _events(self) -> Iterator[dict[str, Any]]:
        for line in self._answers:
            with suppress(ValueError):  # a line that was cut off
                yield json.loads(line)

    def _read_errors(self) -> None:
        for line in self._errors:
            self._last.append(line.rstrip())

    def _death(self, job: Job) -> EmobenchError:
        code = self._process.wait()
        self._reader.join(1.0)
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        memory = " It may have run out of memory." if code == -signal.SIGKILL else ""
        last = "".join(f"\n  {line}" for line in self._last)
        return RunError(
            f"{job.run}, {job.title}: the process on {self._place.name} ended with {how}.{memory} What it finished is "
            f"kept; give the same command again.{f' The last lines that it printed:{last}' if last else ''}"
        )


class _Shown:
    """Shows the works of a worker until it has made its stage."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._open: dict[int, tuple[ExitStack, Progress]] = {}

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, *_: object) -> None:
        for stack, _progress in self._open.values():
            stack.close()

    def show(self, name: str, event: Mapping[str, Any]) -> None:
        match name:
            case "begin":
                stack = ExitStack()
                progress = stack.enter_context(self._reporter.work(event["title"], event["unit"]))
                self._open[event["work"]] = (stack, progress)
            case "progress":
                self._open[event["work"]][1](event["done"], event["total"])
            case "end":
                self._open.pop(event["work"])[0].close()
            case "values":
                self._reporter.values(event["values"])
            case "note":
                self._reporter.note(event["text"])
