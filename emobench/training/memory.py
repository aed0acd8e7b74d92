"""The memory of one training: its peak, and what may be kept. A process may run several trainings one after another."""

from __future__ import annotations

import os
import re
import resource
from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_CONTAINER = Path("/sys/fs/cgroup/memory.max")
_KEPT_SHARE, _KEPT_OF_FREE = 32, 8


def keepable_bytes(device: torch.device) -> int:
    """Return how much memory tables may take that only save time: 1/32 of it, and on a GPU 1/8 of what is free."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        return min(total // _KEPT_SHARE, free // _KEPT_OF_FREE)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or one without a limit
        total = min(total, int(_CONTAINER.read_text()))
    return total // _KEPT_SHARE


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
