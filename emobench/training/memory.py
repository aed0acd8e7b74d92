"""The memory of one training: its peak, and its limits. A process may run several trainings one after another."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from pathlib import Path

import torch

from emobench.core.errors import ConfigError

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_KEPT_SHARE, _KEPT_OF_FREE = 32, 8
_RAN_OUT = ("DefaultCPUAllocator", "CUBLAS_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "[CUDA]: out of memory")


def keepable_bytes(device: torch.device) -> int:
    """Return the memory for tables that only save time: 1/32 of all, and on a GPU at most 1/8 of the free memory."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        total = int(total * torch.cuda.get_per_process_memory_fraction(device))  # see `limit_memory`
        return min(total // _KEPT_SHARE, free // _KEPT_OF_FREE)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
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


def reset_peak(device: torch.device) -> None:
    """Start a new measurement."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # not Linux, or not allowed: the peak is then that of the whole process
            _CLEAR.write_text("5")


def peak_bytes(device: torch.device) -> int:
    """Return the peak in bytes since `reset_peak`: of tensors on a GPU, of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        match = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        if match:
            return int(match[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
