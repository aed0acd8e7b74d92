"""Which of the stages that are to be made a worker makes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from emobench.core.errors import EmobenchError
from emobench.runs.planning.plan import Plan
from emobench.runs.planning.planned import PlannedTraining
from emobench.runs.stages.stage import Stages

BASE = "the model as it is"


@dataclass(frozen=True)
class Job:
    """A stage that is to be made."""

    key: str
    model: str
    """The key of the training that it is, or whose model it evaluates; `BASE` for the model as it is."""
    trains: bool
    run: str
    """Its row and seed, to be shown."""
    title: str


class Schedule:
    """Jobs in their order; each is given out once, and what a failed training leaves undone fails with it."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self.ended: list[tuple[str, EmobenchError | None]] = []
        """The keys of what is made, with None, and of what failed, with its error; in this order."""
        self._trainings: deque[Job] = deque()
        self._tasks: dict[str, deque[Job]] = {}
        self.keys: set[str] = set()
        for job in jobs:
            if job.key not in self.keys:
                self.keys.add(job.key)
                (self._trainings if job.trains else self._tasks.setdefault(job.model, deque())).append(job)
        awaited = {job.key for job in self._trainings}
        self._ready = dict.fromkeys(model for model in self._tasks if model not in awaited)
        """Models that are there and have tasks, in order."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to be given out."""
        return not self._trainings and not self._tasks

    def next(self, model: str) -> Job | None:
        """Return the next job of a worker that has a model loaded, or None if nothing can begin now.

        It goes on with its model; else trainings come first, as others wait for them.
        """
        if model not in self._ready:
            if self._trainings:
                return self._trainings.popleft()
            model = next(iter(self._ready), "")
        if not model:
            return None
        job = self._tasks[model].popleft()
        if not self._tasks[model]:
            del self._tasks[model], self._ready[model]
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
    """Yield what is not finished of a plan. A generation is made with its scores. `about` is shown with its rows."""
    for row in plan.rows:
        for run in row.runs:
            words = [row.label, *([] if row.objective is None else [f"seed {run.seed}"]), *([about] if about else [])]
            label = ", ".join(words)
            for planned in run.stages():
                work = planned.work
                if planned.stage.kind == "generate" or stages.is_finished(planned.stage):
                    continue
                if isinstance(work, PlannedTraining):
                    yield Job(planned.stage.key, planned.stage.key, True, label, "its training")
                else:
                    training = getattr(work, "training", None)
                    model = BASE if training is None else training.stage.key
                    yield Job(planned.stage.key, model, False, label, work.task.name)  # type: ignore[union-attr]
