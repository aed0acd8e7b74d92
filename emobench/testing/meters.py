"""Clocks and peaks of memory, for steps that may run on a GPU."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Any

import torch

LEAST_SECONDS = 0.03
"""A step runs as often in a row as this takes: on a GPU, the gap in which the CPU launches one would count."""


def alternating_seconds(
    runs: Mapping[str, Callable[[], None]], device: str, rounds: int, progress: Callable[[int, int], None]
) -> dict[str, list[float]]:
    """Return the seconds of each run in each round; the order is reversed from round to round."""
    times: dict[str, int] = {}
    total = len(runs) * (rounds + 1)
    for done, (name, run) in enumerate(runs.items(), 1):
        run()  # loads and compiles
        times[name] = max(1, min(50, math.ceil(LEAST_SECONDS / _seconds(run, device))))
        progress(done, total)
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for done, name in enumerate(list(runs)[:: 1 if number % 2 == 0 else -1], len(runs) * (number + 1) + 1):
            found[name].append(_seconds(runs[name], device, times[name]))
            progress(done, total)
    return found


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
    """Return the bytes of tensors that a run holds at most, beyond what is held before it."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    # The resident memory of the process would hold what an earlier step freed, and a dispatch mode would not see what
    # a kernel allocates for itself. The profiler greets on stderr unless it is told not to.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as found:
        run()
    profiler: Any = found.profiler  # its events have no public type
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))
