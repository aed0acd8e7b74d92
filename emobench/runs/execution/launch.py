"""Trainings that several processes make together, with DDP or FSDP.

The process of the command is none of them: it plans, holds the lock of the stage, starts a worker for each rank, and
records. So it sees the end of each of them, and none waits for another that is gone. Where the user's own launcher
(torchrun, accelerate) started the command in every process, that of rank 0 does all this, and the others start only a
worker of their own, when they are told to.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, EmobenchError, RunError
from emobench.models.device import VISIBLE, Place
from emobench.runs.execution.reporter import Reporter, Silent
from emobench.runs.execution.workers import Worker

GRACE, GRACE_OF_FAILED = 60.0, 3.0
"""Seconds in which the others may end, too, once one has, and once one has failed."""
POLL = 0.3
HERE = "127.0.0.1"
ZERO = {"zero2": "2", "zero3": "3"}
"""The launchers that use DeepSpeed, and their stage of ZeRO."""
LAUNCHERS = ("ddp", "fsdp", *ZERO)
GROUP = "EMOBENCH_GROUP"
TIMEOUT = timedelta(hours=2)
"""The longest wait for the others, such as for the one that writes a large model. A dead one is seen at once."""
FSDP = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_CPU_RAM_EFFICIENT_LOADING": "false",  # the head is probed in every process
}
"""What `accelerate launch --use_fsdp --fsdp_version 2` sets."""
LEFT_OUT = (
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
    "ACCELERATE_GRADIENT_CLIPPING",
    "ACCELERATE_DYNAMO_BACKEND",
)
"""Variables of accelerate for what the recipe decides."""
LOST = "another process of this training ended, and this one with it"


class LocalLaunch:
    """Processes on the places of this machine."""

    def __init__(self, launcher: str, places: Sequence[Place]) -> None:
        self.size = len(places)
        self._places = places
        given = {name: value for name, value in os.environ.items() if not is_ours(name)}
        for place in places:
            given |= place.environment
        if all(VISIBLE in place.environment for place in places):  # each process sees all of them
            given[VISIBLE] = ",".join(place.environment[VISIBLE] for place in places)
        elif all(place.device == "cpu" for place in places):  # DeepSpeed would take a GPU that it sees
            given[VISIBLE] = ""
        sizes = {"WORLD_SIZE": str(self.size), "LOCAL_WORLD_SIZE": str(self.size), "MASTER_ADDR": HERE, GROUP: "0"}
        self._environment = {**launched_environment(given, launcher), **sizes}

    def train(self, key: str, what: str, runs: Path, reporter: Reporter) -> None:
        """Make the training of a stage that is planned and locked. Raises RunError if one of the processes fails."""
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        store = TCPStore(HERE, 0, is_master=True, wait_for_workers=False)
        ranks = []
        for rank, place in enumerate(self._places):
            own = {"MASTER_PORT": str(store.port), "RANK": str(rank), "LOCAL_RANK": str(rank)}
            ranks.append((place.name, {**self._environment, **own}))
        _run(ranks, key, what, runs, reporter)


class JoinedLaunch:
    """Processes that a launcher of the user's started, such as torchrun; this one is one of them.

    Its variables are for the worker, and are removed from this process, which plans and evaluates alone. Make it before
    the device is resolved, which hides the other GPUs. A context manager.
    """

    def __init__(self, launcher: str | None) -> None:
        self._environment = launched_environment(os.environ, launcher)
        self.rank, self.size = int(self._environment["RANK"]), int(self._environment["WORLD_SIZE"])
        self._trainings = 0
        self._store: Any = None

    def __enter__(self) -> JoinedLaunch:
        from torch.distributed.rendezvous import rendezvous

        self._store, *_ = next(rendezvous("env://", timeout=TIMEOUT))  # this process may have to keep it
        for name in [name for name in os.environ if is_ours(name)]:
            del os.environ[name]
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # it is gone with its process
            if self.rank == 0:
                self._store.set(self._next, "")

    def train(self, key: str, what: str, runs: Path, reporter: Reporter) -> None:
        self._store.set(self._next, key)
        self._take_part(key, what, runs, reporter)

    def follows(self, runs: Path) -> bool:
        """Do what the process of rank 0 says until it ends, and return True; False if this is that process."""
        if self.rank == 0:
            return False
        while key := self._told():
            self._take_part(key, f"rank {self.rank}", runs, Silent())
        return True

    @property
    def _next(self) -> str:
        """The name in the store of the next training's key; the key is empty when there is no more."""
        return f"emobench/training/{self._trainings + 1}"

    def _told(self) -> str:
        """Wait for the next key. Ctrl-C is heard meanwhile."""
        try:
            while not self._store.check([self._next]):
                time.sleep(POLL)
            return self._store.get(self._next).decode()
        except RuntimeError as error:
            raise RunError(f"rank {self.rank}: the process of rank 0 has ended; its message says why.") from error

    def _take_part(self, key: str, what: str, runs: Path, reporter: Reporter) -> None:
        self._trainings += 1
        environment = {**self._environment, GROUP: str(self._trainings)}
        _run([(f"rank {self.rank}", environment)], key, what, runs, reporter)


Launch = LocalLaunch | JoinedLaunch
"""Processes that make a training together; `size` is their number."""


def _run(ranks: Sequence[tuple[str, Mapping[str, str]]], key: str, what: str, runs: Path, reporter: Reporter) -> None:
    """Let workers make a training, and end them all; raises the error of the one that failed first of its own.

    `ranks` are the names and the environments of the processes.
    """
    import torch

    if torch.cuda.is_initialized():  # for the workers
        torch.cuda.empty_cache()
    processes = [Worker(name, runs, environment) for name, environment in ranks]
    ends: queue.SimpleQueue[EmobenchError | None] = queue.SimpleQueue()

    def serve(process: Worker, shown: Reporter) -> None:
        ends.put(process.make(key, what, shown))

    threads = []
    for process, (_, environment) in zip(processes, ranks, strict=True):
        shown = reporter if environment["RANK"] == "0" else Silent()
        threads.append(threading.Thread(target=serve, args=(process, shown), daemon=True))
        threads[-1].start()
    try:
        errors = _errors(ends, len(processes))
    except KeyboardInterrupt:
        # All stop after the same step, with a checkpoint; a second Ctrl-C stops them at once.
        reporter.note("Stopping after this step, with a checkpoint; once more stops at once.")
        for process in processes:
            process.terminate()
        for thread in threads:
            thread.join()
        raise
    finally:
        for process in processes:
            process.end(GRACE_OF_FAILED)
        for thread, process in zip(threads, processes, strict=True):
            thread.join()
            process.finish()
    if errors:
        raise min(errors, key=lambda error: LOST in str(error))


def _errors(ends: queue.SimpleQueue[EmobenchError | None], count: int) -> list[EmobenchError]:
    """Return the errors of workers, in the order in which they ended: all of them, or those within the grace."""
    errors: list[EmobenchError] = []
    for place in range(count):
        try:
            timeout = GRACE if place else None
            error = ends.get(timeout=GRACE_OF_FAILED if errors else timeout)
        except queue.Empty:
            break
        if error is not None:
            errors.append(error)
    return errors


def world_size() -> int:
    """Return of how many processes a launcher started this one; 1 without a launcher."""
    size = os.environ.get("WORLD_SIZE", "1")
    if not size.isdecimal():
        raise ConfigError(f"WORLD_SIZE is '{size}'; expected the number of processes, as torchrun sets it.")
    return int(size)


def rank() -> int:
    """Return this process's place in its group; 0 if it is alone."""
    import torch.distributed as dist

    return dist.get_rank() if dist.is_initialized() else 0


def is_ours(name: str) -> bool:
    """Return whether an environment variable is one of a launcher's."""
    known = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", GROUP)
    prefixes = ("MASTER_", "ROLE_", "TORCHELASTIC_", "ACCELERATE_", "FSDP_")
    return name in known or name.startswith(prefixes)


def launched_environment(given: Mapping[str, str], launcher: str | None) -> dict[str, str]:
    """Return the environment of one process of a group; without `launcher`, that of the user's own launcher."""
    own = {name: value for name, value in given.items() if name not in LEFT_OUT}
    if launcher is not None:
        own |= {"ACCELERATE_USE_FSDP": "false", "ACCELERATE_USE_DEEPSPEED": "false"}
    if launcher in ZERO:
        own.pop("ACCELERATE_DEEPSPEED_CONFIG_FILE", None)
        own |= {"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": ZERO[launcher]}
    if launcher == "fsdp" or own.get("ACCELERATE_USE_FSDP") == "true":
        own = {**FSDP, **own, "FSDP_CPU_RAM_EFFICIENT_LOADING": "false", "ACCELERATE_USE_FSDP": "true"}
    return own


def join_group(device: str) -> None:
    """Meet the other processes, and compute on this one's GPU. Blocks until all are there; once for each process."""
    import torch
    import torch.distributed as dist
    from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

    if dist.is_initialized():
        return
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*place, is_master=False, timeout=TIMEOUT, wait_for_workers=False)
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=PrefixStore(f"emobench/{os.environ[GROUP]}", store),
        rank=int(os.environ["RANK"]),
        world_size=world_size(),
        timeout=TIMEOUT,
    )


def is_loss(error: BaseException) -> bool:
    """Return whether an exception only says that another process has gone."""
    import torch.distributed as dist

    known: Any = getattr(dist, "DistError", ())
    words = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "gloo/transport", "NCCL")
    return isinstance(error, known) or (isinstance(error, RuntimeError) and any(one in str(error) for one in words))
