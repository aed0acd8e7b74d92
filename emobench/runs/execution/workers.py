"""Processes that make the stages of a plan at once, each on a device of its own.

A worker is `python -m emobench.runs.worker`: it reads keys of planned stages and makes them, as `emobench stage run
KEY` does. The schedule decides only which worker makes which stage: a stage is made once, under its lock, and read from
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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from emobench.core.errors import EmobenchError, NonFiniteLossError, RunError, UserError
from emobench.models.device import Place
from emobench.runs.execution.reporter import Progress, Reporter
from emobench.runs.stages.stage import Stages

if TYPE_CHECKING:
    from emobench.runs.planning.plan import Plan


StartWorker: TypeAlias = Callable[[Place, Path], Any]
"""Makes the worker of a place and a folder of runs, with the methods of `Worker`."""

LAST_LINES = 15
"""Lines that a worker printed, in the error about its end."""


@dataclass(frozen=True)
class Job:
    """A stage that is to be made."""

    key: str
    model: str
    """The key of the training that it is, or whose model it evaluates; empty for the model as it is."""
    trains: bool
    run: str
    """Its row and seed, to be shown."""
    title: str


class Schedule:
    """Jobs in their order; each is given out once, and the tasks of a failed training fail with it."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.ended: list[tuple[str, EmobenchError | None]] = []
        """The keys of jobs in the order of their ends, with None or the error."""
        self._trainings: deque[Job] = deque()
        self._tasks: dict[str, deque[Job]] = {}
        self.keys: set[str] = set()
        self.begun: list[str] = []
        """The keys of jobs that were given out, in order."""
        for job in jobs:
            if job.key not in self.keys:
                self.keys.add(job.key)
                queue = self._trainings
                if not job.trains:
                    queue = self._tasks.setdefault(job.model, deque())
                queue.append(job)
        awaited = {job.key for job in self._trainings}
        self._ready = dict.fromkeys(model for model in self._tasks if model not in awaited)
        """Models that are there and have tasks, in order."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to be given out."""
        return not self._trainings and not self._tasks

    def next(self, model: str | None) -> Job | None:
        """Return the next job of a worker that has a model loaded, or None if nothing can begin now.

        It goes on with its model; else trainings come first, as others wait for them.
        """
        if model not in self._ready:
            if self._trainings:
                return self._begin(self._trainings)
            if not self._ready:
                return None
            model = next(iter(self._ready))
        job = self._begin(self._tasks[model])
        if not self._tasks[model]:
            del self._tasks[model], self._ready[model]
        return job

    def _begin(self, queue: deque[Job]) -> Job:
        job = queue.popleft()
        self.begun.append(job.key)
        return job

    def settle(self, job: Job, error: EmobenchError | None) -> None:
        """Note the end of a job."""
        self.ended.append((job.key, error))
        if not job.trains or job.key not in self._tasks:
            return
        if error is None:
            self._ready[job.key] = None
        else:
            self.ended += [(task.key, error) for task in self._tasks.pop(job.key)]


def jobs_of(plan: Plan, stages: Stages, about: str = "") -> Iterator[Job]:
    """Yield the unfinished stages of a plan, except those that are made along with others.

    `about` is shown with its rows.
    """
    for row, run in plan.rows_and_runs():
        label = row.label
        if row.objective is not None:
            label += f", seed {run.seed}"
        if about:
            label += f", {about}"
        for stage in run.stages():
            if stage.title and not stages.is_finished(stage):
                yield Job(stage.key, stage.loads, stage.loads == stage.key, label, stage.title)


class Workers:
    """Makes stages in the background, until its end; a context manager.

    A failed stage fails those that need it, and the others go on.
    """

    def __init__(
        self,
        places: Sequence[Place],
        jobs: Iterable[Job],
        folder: Path,
        reporter: Reporter,
        start: StartWorker | None = None,
    ) -> None:
        self._folder = folder
        self._start = start or local_worker
        self._changed = threading.Condition()
        self._schedule = Schedule(jobs)
        self._closed = False
        self._processes: list[Any] = []
        needed = places[: len(self._schedule.keys)]
        self._threads = [threading.Thread(target=self._serve, args=(p, reporter), daemon=True) for p in needed]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the stages in progress: trainings after their step, with a checkpoint; a second Ctrl-C, at once."""
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

    def completed(self, wanted: Sequence[Iterable[str]]) -> Iterator[tuple[int, EmobenchError | None]]:
        """Yield the place of each group of keys when all of its stages have ended, with its first error or None.

        Keys that are no jobs of these workers belong to stages that were finished before.
        """
        left = list(map(self._schedule.keys.intersection, wanted))
        places: dict[str, list[int]] = {}
        for place, keys in enumerate(left):
            for key in keys:
                places.setdefault(key, []).append(place)
            if not keys:
                yield place, None
        errors: dict[int, EmobenchError] = {}
        ended, seen = self._schedule.ended, 0
        while any(left):
            with self._changed:
                while len(ended) == seen:
                    self._changed.wait()
            key, error = ended[seen]
            seen += 1
            for place in places.get(key, ()):
                left[place].discard(key)
                if error is not None:
                    errors.setdefault(place, error)
                if not left[place]:
                    yield place, errors.get(place)

    def _serve(self, place: Place, reporter: Reporter) -> None:
        shown, process, model, run = reporter.worker(place.name), None, None, ""
        try:
            while (job := self._next(model)) is not None:
                if process is None:
                    process = self._start(place, self._folder)
                    with self._changed:
                        self._processes.append(process)
                        if self._closed:
                            process.terminate()
                if job.run != run:
                    shown.note(job.run)
                shown.stage(self._schedule.begun.index(job.key) + 1, len(self._schedule.keys))
                error = process.make(job.key, f"{job.run}, {job.title}", shown)
                if process.ended:
                    process.finish()
                    process = None
                with self._changed:
                    self._schedule.settle(job, error)
                    self._changed.notify_all()
                model, run = job.model, job.run  # a trained model stays loaded for its tasks
        finally:
            if process is not None:
                process.finish()

    def _next(self, model: str | None) -> Job | None:
        """Return the next job of a worker, or None when none is left for it; waits until one is ready."""
        with self._changed:
            while not self._closed and not self._schedule.is_empty:
                if (job := self._schedule.next(model)) is not None:
                    return job
                self._changed.wait()
            return None


class Worker:
    """A worker process: one line with a key goes in, and lines of JSON come out until the stage is made."""

    def __init__(self, name: str, runs: Path, environment: Mapping[str, str]) -> None:
        self._name = name
        command = [sys.executable, "-m", "emobench.runs.worker", str(runs)]
        # A session of its own: Ctrl-C reaches this process alone, which then stops the workers.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=dict(environment),
            start_new_session=True,
        )
        keys, answers, errors = self._process.stdin, self._process.stdout, self._process.stderr
        assert keys is not None
        assert answers is not None
        assert errors is not None
        self._keys, self._answers, self._errors = keys, answers, errors
        self._last: deque[str] = deque(maxlen=LAST_LINES)
        self._reader = threading.Thread(target=self._last.extend, args=[map(str.rstrip, errors)], daemon=True)
        self._reader.start()

    @property
    def ended(self) -> bool:
        """Whether it can make no further stage."""
        return self._process.poll() is not None

    def make(self, key: str, what: str, reporter: Reporter) -> EmobenchError | None:
        """Make a stage, and show the worker's reports; return the error if it failed.

        `what` begins the error: the stage, as it is shown.
        """
        with suppress(OSError):  # it has ended, which is seen below
            self._keys.write(f"{key}\n")
            self._keys.flush()
        works: dict[int, tuple[ExitStack, Progress]] = {}
        with ExitStack() as shown:
            for line in self._answers:
                event: dict[str, Any] = {"event": ""}
                with suppress(ValueError):  # a line that was cut off
                    event = json.loads(line)
                match event["event"]:
                    case "made":
                        return None
                    case "failed":
                        kind: type[EmobenchError] = RunError
                        if event["code"] == UserError.exit_code:
                            kind = UserError
                        elif event.get("diverged"):
                            kind = NonFiniteLossError
                        return kind(f"{what}: {event['text']}")
                    case "begin":
                        work = shown.enter_context(ExitStack())
                        works[event["work"]] = work, work.enter_context(reporter.work(event["title"], event["unit"]))
                    case "progress":
                        works[event["work"]][1](event["done"], event["total"])
                    case "end":
                        works.pop(event["work"])[0].close()
                    case "values":
                        reporter.values(event["values"])
                    case "note":
                        reporter.note(event["text"])
        return self._death(what)

    def terminate(self) -> None:
        """Let it stop as at Ctrl-C."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self, seconds: float | None = None) -> None:
        """Let it end, as it has nothing to do; kill it if that takes longer than `seconds`."""
        with suppress(OSError):
            self._keys.close()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def finish(self) -> None:
        """Let it end, and close its pipes."""
        self.end()
        self._process.wait()
        self._reader.join()
        self._answers.close()
        self._errors.close()

    def _death(self, what: str) -> EmobenchError:
        code = self._process.wait()
        self._reader.join(1.0)
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"ended with signal {signal.Signals(-code).name}"
        if code == -signal.SIGKILL:
            how += ". It may have run out of memory"
        text = f"{what}: the process on {self._name} {how}. What it finished is kept; give the same command again."
        return RunError("\n  ".join([text, *self._last]))


def local_worker(place: Place, runs: Path) -> Worker:
    """Start a worker process on a device of this machine."""
    return Worker(place.name, runs, {**os.environ, **place.environment})
