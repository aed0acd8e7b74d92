"""The memory of one training: its peak, and its limits. A process may run several trainings one after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import psutil
import torch

from emobench.core.errors import ConfigError
from emobench.models.device import machine_memory

PAUSE = 0.02
"""Seconds between two readings of the memory of a process."""
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_KEPT_SHARE, _KEPT_OF_FREE = 32, 8
_RAN_OUT = ("DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "[CUDA]: out of memory")


def keepable_bytes(device: torch.device) -> int:
    """Return the memory for tables that only save time: 1/32 of all, and on a GPU at most 1/8 of the free memory."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        total = int(total * torch.cuda.get_per_process_memory_fraction(device))  # see `limit_memory`
        return min(total // _KEPT_SHARE, free // _KEPT_OF_FREE)
    total = machine_memory()
    with suppress(OSError, ValueError):  # no container, or one without a limit
        total = min(total, int(_CONTAINER.read_text()))
    return total // _KEPT_SHARE


def limit_memory(name: str, limit: int) -> None:
    """Let this process hold at most `limit` bytes of tensors on a GPU; beyond it, torch raises OutOfMemoryError.

    Raises ConfigError for a CPU: its libraries keep freed memory, so that a smaller attempt would find no room.
    """
    device = torch.device(name)
    if device.type != "cuda":
        raise ConfigError(
            f"--max-memory is for GPUs, and --device is {name}; drop it, and take smaller micro-batches with --set "
            "recipe.accumulation=N."
        )
    place = torch.cuda.current_device() if device.index is None else device.index
    total = torch.cuda.get_device_properties(place).total_memory
    torch.cuda.set_per_process_memory_fraction(min(limit / total, 1.0), place)


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there is no memory left."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _RAN_OUT)


@dataclass
class Peak:
    """The largest memory of a measurement: of tensors on a CUDA device, elsewhere of the whole process."""

    bytes: int = 0


@contextmanager
def measured_peak(device: torch.device) -> Iterator[Peak]:
    """Measure the peak memory of the block, known at its end. Elsewhere than on CUDA a thread reads it repeatedly."""
    peak = Peak()
    ended = Event()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device)
        return

    def watch() -> None:
        ending = False
        while not ending:
            ending = ended.wait(PAUSE)
            peak.bytes = max(peak.bytes, _process_memory(device))

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _process_memory(device: torch.device) -> int:
    """Return the memory that the process has now. Metal's buffers are not all counted as the process's."""
    used = psutil.Process().memory_info().rss
    return max(used, torch.mps.driver_allocated_memory()) if device.type == "mps" else used
