"""Time and peak memory of a step, on a CPU or a GPU."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import torch

LEAST_SECONDS = 0.03
"""A step is repeated for at least this time: a single step on a GPU would include the launch by the CPU."""


def alternating_seconds(
    runs: Mapping[str, Callable[[], None]], device: str, rounds: int, progress: Callable[[int, int], None]
) -> dict[str, list[float]]:
    """Return the seconds of each run in each round. Every second round has the reverse order."""
    times: dict[str, int] = {}
    total = len(runs) * (rounds + 1)
    for done, (name, run) in enumerate(runs.items(), 1):
        run()  # loads and compiles
        times[name] = max(1, min(50, math.ceil(LEAST_SECONDS / _seconds(run, device))))
        progress(done, total)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for done, name in enumerate(list(runs)[:: 1 if number % 2 == 0 else -1], len(runs) * (number + 1) + 1):
            seconds[name].append(_seconds(runs[name], device, times[name]))
            progress(done, total)
    return seconds


def _seconds(run: Callable[[], None], device: str, times: int = 1) -> float:
    if torch.device(device).type != "cuda":
        start = time.process_time()
        for _ in range(times):
            run()
        return (time.process_time() - start) / times
    with torch.cuda.device(device):
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start_event.record()
        for _ in range(times):
            run()
        end_event.record()
        end_event.synchronize()
    return start_event.elapsed_time(end_event) / 1e3 / times


def peak_bytes(run: Callable[[], None], device: str) -> int:
    """Return the peak bytes of tensors during a run, minus those before it."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # The profiler, because the resident memory of the process includes what earlier steps freed, and a dispatch mode
    # does not see allocations inside a kernel. The log level stops its message on stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    profiler: Any = profile.profiler  # its events have no public type
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))
