"""The device for `--device`, what `auto` means on this machine, and how the models of a run are loaded."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from emobench.core.errors import ConfigError, ModelError, first_line

if TYPE_CHECKING:
    import torch

AUTO = "auto"
DTYPES = ("float32", "bfloat16", "float16", "float64")
"""Precisions of weights."""
MPS = "mps"
"""The GPU of a Mac with Apple silicon."""
WITHOUT_FLOAT64 = {MPS}
"""Types of devices without float64."""
MPS_NOTE = (
    "--device mps trains in float32 on the GPU of this Mac. Evaluations run on its CPU, because they need float64. The "
    "times that a dry run estimates are for the CPU."
)
VISIBLE = "CUDA_VISIBLE_DEVICES"
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Where a model is read from and computes, and in which precision."""

    device: str = "cpu"
    dtype: str = "float32"
    """Of the weights: float32, bfloat16 or float16."""
    offline: bool = False
    trust_remote_code: bool = False
    from_scratch: bool = False
    """Draw random weights instead of loading the model's."""
    tokenizer: str | None = None
    """A folder, an alias or a hub id, whose tokenizer takes the place of the model's."""


def resolve_device(name: str) -> str:
    """Return "cpu", "cuda" or "mps" for a value of `--device`. `auto` is a CUDA or ROCm GPU if this machine has one.

    Only this function knows `auto`: keys, entries and estimates contain its result. The process then sees only this
    GPU, because the Trainer would use all of them; so call it before CUDA is used. `check_device` checks that the
    device exists; a dry run for another machine does not. Raises ConfigError for a GPU that CUDA_VISIBLE_DEVICES hides.
    """
    index = 0 if name == AUTO else _gpu_index(name)
    if index is None:
        return name
    if index or _allowed() != []:
        os.environ[VISIBLE] = _visible(index)
    return "cuda" if name != AUTO or _has_cuda() else "cpu"


@dataclass(frozen=True)
class Place:
    """Where a worker process computes."""

    name: str
    """As it is shown: cuda:1, or cpu:0 for the first of several processes on the CPU."""
    device: str
    """What `--device` would be."""
    environment: Mapping[str, str]
    """The variables that let a process see this device alone."""


def several_devices(names: str) -> list[Place]:
    """Return the GPUs of a value of `--devices`, such as "0,1", "cuda:0,cuda:1" or "auto", all that are visible.

    Call it before `resolve_device`, which hides all but one. Raises ConfigError for what names no GPU, or one twice.
    """
    words = [name.strip().removeprefix("cuda:") for name in names.split(",")]
    if names == AUTO:
        import torch

        words = list(map(str, range(torch.cuda.device_count())))
    if not words or not all(map(str.isdecimal, words)) or len(set(words)) < len(words):
        raise ConfigError(
            f"--devices is {names}; expected auto on a machine with a GPU, or GPUs such as 0,1,2,3, each once. "
            "Several processes on the CPU are --processes N."
        )
    return [Place(f"cuda:{word}", f"cuda:{word}", {VISIBLE: _visible(int(word))}) for word in words]


def several_processes(count: int) -> list[Place]:
    """Return places for processes that share the cores of the CPU; variables that the user has set are kept."""
    threads: dict[str, str] = {}
    if THREADS not in os.environ:
        threads[THREADS] = str(max(1, cores() // count))
    return [Place(f"cpu:{index}", "cpu", threads) for index in range(count)]


def default_places(device: str) -> list[Place]:
    """Return where the workers of a sweep compute: on each GPU that is visible, or in one process on the CPU."""
    index = _gpu_index(device)
    if index is not None:
        return several_devices(str(index))
    if device != AUTO:
        return [Place(device, device, {})]
    return several_devices(AUTO) if _has_cuda() else several_processes(1)


def _gpu_index(device: str) -> int | None:
    """Return the number of cuda or cuda:N, None for other devices."""
    kind, _, index = device.partition(":")
    return int(index or 0) if kind == "cuda" and (index or "0").isdecimal() else None


def resolve_dtype(name: str) -> str:
    """Return the data type of weights for a value of `--dtype`. `auto` is float32."""
    return "float32" if name == AUTO else name


def check_device(device: str) -> None:
    """Raise ModelError unless this machine has the device."""
    import torch

    try:
        if device != MPS and device.partition(":")[0] not in ("cpu", "cuda"):
            raise ValueError("no such device")
        if not is_here(device):
            raise ValueError("this machine, or its torch, has none")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ModelError(
            f"--device {device} is unknown or not available ({first_line(error)}); expected auto, cpu, cuda, cuda:0 or "
            "mps. See `emobench doctor`."
        ) from None


def refuse_mps(device: str) -> None:
    """Raise ConfigError for an Apple GPU, on which only trainings run."""
    if device == MPS:
        raise ConfigError("--device mps is for trainings; this command needs float64. Use --device cpu.")


def is_here(device: str) -> bool:
    """Return whether this machine has the device. A dry run may be for the GPU of another machine."""
    if device == MPS:
        import torch

        return torch.backends.mps.is_available()
    return not device.startswith("cuda") or _has_cuda()


def evaluating(options: LoadOptions) -> LoadOptions:
    """Return where a model is evaluated: on the CPU instead of an Apple GPU, which has no float64."""
    return replace(options, device="cpu") if options.device == MPS else options


def with_float64(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor where float64 exists: on the CPU instead of an Apple GPU, else as it is."""
    return tensor.cpu() if tensor.device.type in WITHOUT_FLOAT64 else tensor


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine_memory() -> int:
    """Return the memory of this machine in bytes."""
    import psutil

    return psutil.virtual_memory().total


def free_memory() -> None:
    """Give the memory of objects that nothing refers to back to the device, for other processes."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def quick_collections() -> Iterator[None]:
    """Leave the objects that are alive now out of the collections of garbage in the block.

    A collection otherwise goes over all objects of all libraries, which takes half a second, and a training's libraries
    ask for one as often as the harness does.
    """
    import gc

    frozen = gc.get_freeze_count()
    if not frozen:
        gc.freeze()
    try:
        yield
    finally:
        if not frozen:
            gc.unfreeze()


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _visible(place: int) -> str:
    """Return the value of CUDA_VISIBLE_DEVICES that leaves one of the GPUs that it allows now."""
    allowed = _allowed()
    if allowed is None:
        return str(place)
    if place >= len(allowed):
        raise ConfigError(
            f"--device cuda:{place}: {VISIBLE} is '{os.environ[VISIBLE]}', which leaves {len(allowed)} to this process."
        )
    return allowed[place]


def _allowed() -> list[str] | None:
    """Return the GPUs that CUDA_VISIBLE_DEVICES names; None if it is not set."""
    if VISIBLE not in os.environ:
        return None
    return [name for name in os.environ[VISIBLE].split(",") if name.strip()]
