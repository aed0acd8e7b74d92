"""Stages on a cluster: each is a task of Ray or a job of Slurm, and a worker process on the node makes it.

All nodes see the folder of runs, at the same path, and have emobench and the data. A stage is made under its lock, so
that one that is given out twice, such as after the loss of a node, is still made once.
"""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from emobench.core.errors import ConfigError, EmobenchError, RunError, UnknownNameError, first_line
from emobench.core.extras import MissingPackageError
from emobench.core.settings import parse_call
from emobench.models.device import Place
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.execution.workers import Worker, local_worker

RETRIES = 3
"""How often a stage is tried again whose node was lost."""
POLL = 0.5
"""Seconds between two looks at a task."""
AGAIN = 20
"""How often a job of Slurm is queued again whose time ended."""
LOOK, LATE = 30.0, 90.0
"""Seconds between two looks at Slurm's queue, and in which the result of a job that has ended is seen on a disk."""
STOP = 75.0
"""Seconds in which a stage stops with a checkpoint: Slurm ends the job 90 seconds after it asked for that."""
AT_ONCE = 16
"""Jobs of Slurm at once, unless `--processes` says another number."""

_here: Worker | None = None
"""The process of this node, which stays for the next stage: its model may be loaded."""


def make_here(runs: str, key: str, what: str) -> EmobenchError | None:
    """Make a stage on this node; what a cluster calls there."""
    global _here
    if _here is None or _here.ended:
        _here = local_worker(Place("this node", "", {}), Path(runs))
    try:
        return _here.make(key, what, Silent())
    except BaseException:  # cancelled
        _stop_here()
        _here.finish()
        raise


def _stop_here() -> None:
    """Let the training of this node stop after its step, with a checkpoint."""
    if _here is None:
        return
    _here.terminate()
    end = time.monotonic() + STOP
    while not _here.ended and time.monotonic() < end:  # it is not told to end: that would stop it at once
        time.sleep(POLL)


class RemoteWorker:
    """A place on a cluster: it submits one stage after the other and waits."""

    ended = False

    def __init__(self, submit: Callable[..., Any], runs: Path) -> None:
        """`submit` takes the folder of runs, a key and what it is; it returns a task: `done`, `result`, `cancel`."""
        self._submit, self._runs = submit, runs
        self._task: Any = None
        self._stopped = False

    def make(self, key: str, what: str, reporter: Reporter) -> EmobenchError | None:
        """Make a stage as a `Worker` does."""
        if self._stopped:
            return RunError(f"{what}: stopped before it began.")
        with reporter.work(what, "stages"):
            try:
                self._task = self._submit(str(self._runs), key, what)
                if self._stopped:  # meanwhile
                    self._task.cancel()
                while not self._task.done():
                    time.sleep(POLL)
                return self._task.result()
            except Exception as error:
                return RunError(
                    f"{what}: the cluster did not finish it ({first_line(error)}). What it finished is kept; give "
                    "the same command again."
                )

    def terminate(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    kill = terminate

    def finish(self) -> None:
        pass


class SlurmStage:
    """What a job of Slurm calls; submitit keeps it in a file.

    At Slurm's user signal, as near the end of its time, a job stops its stage with a checkpoint and is queued again.
    """

    def __call__(self, runs: str, key: str, what: str) -> EmobenchError | None:
        return make_here(runs, key, what)

    def checkpoint(self, runs: str, key: str, what: str) -> Any:
        """Return the submission that goes on; submitit calls this at its signal."""
        from submitit.helpers import DelayedSubmission  # type: ignore[import-not-found]

        _stop_here()
        return DelayedSubmission(self, runs, key, what)


class _Queue:
    """The jobs that Slurm has, by squeue: sacct, which submitit asks, knows jobs only where Slurm keeps accounts."""

    def __init__(self) -> None:
        self._jobs: frozenset[str] = frozenset()
        self._asked = self._seen = -math.inf
        self._lock = threading.Lock()

    def has(self, job: str, since: float) -> bool:
        """Return whether a job that was submitted at a time, by `time.monotonic`, waits, runs or ends."""
        with self._lock:
            if time.monotonic() - self._asked > LOOK:
                self._asked = time.monotonic()
                command = ["squeue", "--all", "--noheader", f"--user={os.getuid()}", "--format=%A"]
                plain = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}  # filters
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=plain)
                if done.returncode == 0:  # else Slurm is asked again later: it may be restarting
                    self._jobs, self._seen = frozenset(done.stdout.split()), self._asked
            return job in self._jobs or self._seen < since


class _SlurmTask:
    def __init__(self, job: Any, queue: _Queue) -> None:
        self._job, self._queue = job, queue
        self._submitted = time.monotonic()
        self._cancelled = False

    def done(self) -> bool:
        return self._has_result() or self._cancelled or not self._queue.has(self._job.job_id, self._submitted)

    def result(self) -> EmobenchError | None:
        end = time.monotonic() + (0 if self._cancelled else LATE)
        while not self._has_result():
            if time.monotonic() > end:
                raise RunError(f"job {self._job.job_id} has left Slurm without a result; see {self._job.paths.stderr}")
            time.sleep(POLL)
        return self._job.result()

    def cancel(self) -> None:
        self._cancelled = True
        self._job.cancel(check=False)

    def _has_result(self) -> bool:
        folder = self._job.paths.folder
        with suppress(OSError):
            folder.chmod(folder.stat().st_mode)  # a client of NFS then asks its server
        return self._job.paths.result_pickle.exists()


def cluster_of(
    text: str, *, runs: Path, device: str, processes: int | None, memory: int | None
) -> tuple[list[Place], Callable[[Place, Path], RemoteWorker]]:
    """Return the places of the cluster that `--on` names, and what starts a worker at one of them.

    "ray", "ray(num_cpus=4)", "slurm(partition=gpu, timeout_min=600)": the parameters are those of Ray's tasks and of
    submitit. Raises ConfigError where there is no cluster.
    """
    name, given = parse_call(text)
    packages = {"ray": "ray", "slurm": "submitit"}
    if name not in packages:
        raise UnknownNameError("cluster", name, packages, where="--on: ")
    if find_spec(packages[name]) is None:
        raise MissingPackageError(packages[name], name)
    if name == "ray":
        count, submit = _ray(given, "GPU" if device.startswith("cuda") else "CPU", processes, memory)
    else:
        count, submit = processes or AT_ONCE, _slurm(given, runs, device, memory)
    places = [Place(f"{name}:{index}", "", {}) for index in range(count)]
    return places, lambda place, runs: RemoteWorker(submit, runs)


def _ray(
    given: dict[str, Any], resource: str, processes: int | None, memory: int | None
) -> tuple[int, Callable[..., Any]]:
    """Return how many stages run at once, and what submits one."""
    import ray  # type: ignore[import-not-found]

    if not ray.is_initialized():
        try:
            ray.init(address=given.pop("address", "auto"), log_to_driver=False)
        except ConnectionError:
            raise ConfigError(
                "--on ray: no cluster of Ray runs here. Start one with `ray start --head`, or set RAY_ADDRESS."
            ) from None
    own = f"num_{resource.lower()}s"
    wanted = {own: 1, "max_retries": RETRIES, **given}
    if memory:
        wanted.setdefault("memory", memory)
    there = ray.cluster_resources().get(resource, 0)
    count = processes or int(there / wanted[own])
    if count < 1:
        raise ConfigError(f"--on ray: the cluster has {there:g} {resource}s, too few for one stage.")
    task = ray.remote(make_here).options(**wanted)

    def submit(*stage: str) -> Any:
        reference = task.remote(*stage)
        return SimpleNamespace(
            done=lambda: bool(ray.wait([reference], timeout=0)[0]),
            result=lambda: ray.get(reference),
            cancel=lambda: ray.cancel(reference),
        )

    return count, submit


def _slurm(given: dict[str, Any], runs: Path, device: str, memory: int | None) -> Callable[..., Any]:
    """Return what submits a stage."""
    import submitit  # type: ignore[import-not-found]

    own: dict[str, Any] = {"name": "emobench"}
    if memory:
        own["mem_gb"] = memory / 2**30
    if device.startswith("cuda"):
        own["gpus_per_node"] = 1
    try:
        limits = {"slurm_max_num_timeout": given.pop("slurm_max_num_timeout", AGAIN)}
        executor = submitit.AutoExecutor(folder=runs.resolve() / "slurm", cluster=given.pop("cluster", None), **limits)
        executor.update_parameters(**own | given)
    except (RuntimeError, NameError, TypeError, ValueError) as error:
        raise ConfigError(f"--on slurm: {error}") from None
    queue, lock = _Queue(), threading.Lock()

    def submit(*stage: str) -> Any:
        with lock:  # the executor is not for several threads
            job = executor.submit(SlurmStage(), *stage)
        return _SlurmTask(job, queue) if executor.cluster == "slurm" else job

    return submit
