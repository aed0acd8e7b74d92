"""Processes that make the stages of a plan at once, each on a device of its own.

A worker is `python -m emobench.runs.worker`: it reads keys of planned stages and makes them, as `emobench stage run
KEY` does. What is scheduled here is only which worker makes what: a stage is made once, under its lock, and read from
the folder of runs, so that results do not depend on the number of workers.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from emobench.core.errors import EmobenchError
from emobench.models.device import Place
from emobench.runs.execution.processes import WorkerProcess
from emobench.runs.execution.reporter import Reporter
from emobench.runs.execution.schedule import Job, Schedule


class Worker(Protocol):
    """What makes stages at one place, one at a time."""

    @property
    def ended(self) -> bool:
        """Whether it can make no further stage."""
        ...

    def make(self, key: str, what: str, reporter: Reporter) -> EmobenchError | None:
        """Make a stage, telling the reporter what is done; return the error if it failed, which `what` begins."""
        ...

    def terminate(self) -> None:
        """Let it stop as at Ctrl-C."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...

    def finish(self) -> None:
        """Let it end, as it has nothing to do."""
        ...


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
        start: Callable[[Place, Path], Worker] | None = None,
    ) -> None:
        self._folder = folder
        self._start = start or local_worker
        self._changed = threading.Condition()
        self._schedule = Schedule(jobs)
        self._closed = False
        self._processes: list[Worker] = []
        needed = places[: len(self._schedule.keys)]
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

    def completed(self, wanted: Sequence[Iterable[str]]) -> Iterator[tuple[int, EmobenchError | None]]:
        """Yield the place of each group of keys when all of its stages are made, or None or its first error otherwise.

        What is not a job of these workers was finished before.
        """
        left = [{key for key in keys if key in self._schedule.keys} for keys in wanted]
        groups: dict[str, list[int]] = {}
        for place, keys in enumerate(left):
            for key in keys:
                groups.setdefault(key, []).append(place)
        yield from ((place, None) for place, keys in enumerate(left) if not keys)
        errors: dict[int, EmobenchError] = {}
        for key, error in self._ends(groups.keys()):
            for place in groups[key]:
                left[place].discard(key)
                if error is not None:
                    errors.setdefault(place, error)
                if not left[place]:
                    yield place, errors.get(place)

    def _ends(self, keys: Collection[str]) -> Iterator[tuple[str, EmobenchError | None]]:
        """Yield each of these keys when its stage is made or failed."""
        awaited, seen = len(keys), 0
        while awaited:
            with self._changed:
                while len(self._schedule.ended) == seen:
                    self._changed.wait()
                new = self._schedule.ended[seen:]
            seen += len(new)
            for key, error in new:
                if key in keys:
                    awaited -= 1
                    yield key, error

    def _serve(self, place: Place, reporter: Reporter) -> None:
        shown, process, model, run = reporter.worker(place.name), None, "", ""
        try:
            while (job := self._next(model)) is not None:
                if process is None:
                    process = self._started(place)
                if job.run != run:
                    shown.note(job.run)
                error = process.make(job.key, f"{job.run}, {job.title}", shown)
                if process.ended:
                    process.finish()
                    process = None
                self._settle(job, error)
                model, run = job.model, job.run  # a trained model stays loaded for its tasks
        finally:
            if process is not None:
                process.finish()

    def _started(self, place: Place) -> Worker:
        process = self._start(place, self._folder)
        with self._changed:
            self._processes.append(process)
            if self._closed:
                process.terminate()
        return process

    def _next(self, model: str) -> Job | None:
        """Return what a worker makes next, or None when nothing is left for it; waits until something is ready."""
        with self._changed:
            while not self._closed and not self._schedule.is_empty:
                if (job := self._schedule.next(model)) is not None:
                    return job
                self._changed.wait()
            return None

    def _settle(self, job: Job, error: EmobenchError | None) -> None:
        with self._changed:
            self._schedule.settle(job, error)
            self._changed.notify_all()


def local_worker(place: Place, runs: Path) -> WorkerProcess:
    """Start a worker process on a device of this machine."""
    return WorkerProcess(place.name, runs, {**os.environ, **place.environment})
