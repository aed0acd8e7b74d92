"""The peak memory of one training, though a process may hold several one after another."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak(device: torch.device) -> None:
    """Begin a new peak."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        with suppress(OSError):  # no Linux, or not allowed: the peak is then the whole process's
            _CLEAR.write_text("5")


def peak_bytes(device: torch.device) -> int:
    """Return the peak since `reset_peak`: of tensors on a GPU; on a CPU of the process, libraries and all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text())
        if found:
            return int(found[1]) * 1024
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
