"""What the benchmarks share: tokens that repeat as text does, clocks, peaks of memory, and JSON that says its origin.

Legend: N tokens, V vocabulary, U distinct tokens.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import emobench
from emobench.leaderboard.private_paths import published_command

BENCHMARKS = Path(__file__).parent
RESULTS = BENCHMARKS / "results"
PEERS = ("EMOLoss", "liger-kernel", "cut-cross-entropy")

# U/N of WikiText-2 (validation and test, without its tokenisation) in batches of N tokens: GPT-2's BPE, LLaMA's SPM.
BATCHES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
DISTINCT_SHARE = {
    "gpt2": (0.431, 0.360, 0.330, 0.292, 0.252, 0.209, 0.166, 0.123),
    "llama": (0.438, 0.353, 0.321, 0.278, 0.234, 0.190, 0.142, 0.099),
}
# Zipf-Mandelbrot. With this shift the distinct tokens beyond the 4,096 most frequent are about as many as in that text:
# .091, .097 and .075 N for 8192 and 16384 tokens of GPT-2 and 8192 of LLaMA (in the text .099, .090 and .071).
RANK_SHIFT = 3.7


def distinct_share(tokens: int, vocabulary: int) -> float:
    """Return U/N of real text, by the tokenizer whose vocabulary is nearer."""
    shares = DISTINCT_SHARE["llama" if vocabulary <= 40_000 else "gpt2"]
    return float(np.interp(math.log(tokens), np.log(BATCHES), shares))


def text_like_tokens(shape: tuple[int, ...], vocabulary: int, rng: torch.Generator, *, batch: int = 0) -> Tensor:
    """Return random token ids, most frequent first, of which `batch` (default: all) have the U/N of real text."""
    count = batch or math.prod(shape)
    rank_V = torch.arange(vocabulary, dtype=torch.float64) + RANK_SHIFT

    def frequency(exponent: float) -> Tensor:
        weight_V = rank_V**-exponent
        return weight_V / weight_V.sum()

    low, high = 0.0, 8.0
    for _ in range(40):
        exponent = (low + high) / 2
        share = float(-torch.expm1(count * torch.log1p(-frequency(exponent))).sum()) / count
        low, high = (exponent, high) if share > distinct_share(count, vocabulary) else (low, exponent)
    drawn = torch.multinomial(frequency(low), math.prod(shape), replacement=True, generator=rng)
    return drawn.view(shape)


def reuse_memory() -> None:
    """Make this process keep the memory that it frees, and take it again without page faults.

    Otherwise a large tensor is new memory at each step, and the system's clearing of it counts against whole
    logits. Linux with glibc: M_MMAP_MAX = 0 (never mmap), M_TRIM_THRESHOLD = -1 (never give back).
    """
    libc = ctypes.CDLL(None)
    set_ = [libc.mallopt(-4, 0), libc.mallopt(-1, -1)]
    assert all(set_), "This C library has no such settings."


def seconds_of(run: Callable[[], object], device: str, times: int = 1) -> float:
    """Return the seconds of one of `times` runs in a row: between CUDA events, or the process's CPU time."""
    if device != "cuda":
        start = time.process_time()
        for _ in range(times):
            run()
        return (time.process_time() - start) / times
    start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start_event.record()
    for _ in range(times):
        run()
    end_event.record()
    end_event.synchronize()
    return start_event.elapsed_time(end_event) / 1e3 / times


def alternating_seconds(
    runs: Mapping[str, Callable[[], object]], device: str, *, rounds: int, least_seconds: float = 0.0
) -> dict[str, list[float]]:
    """Return the seconds of each run in each round; rounds alternate between the given order and its reverse.

    On a GPU each run goes, within a round, as often as `least_seconds` takes: a single short step would be measured
    with the gap in which the CPU launches it. Each must have run before, so that nothing is loaded or compiled.
    """
    times = dict.fromkeys(runs, 1)
    if device == "cuda":
        for name, run in runs.items():
            times[name] = max(1, min(50, round(least_seconds / seconds_of(run, device))))
    found: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(rounds):
        for name in list(runs)[:: 1 if number % 2 == 0 else -1]:
            found[name].append(seconds_of(runs[name], device, times[name]))
    return found


def median_and_spread(seconds: list[float]) -> dict[str, Any]:
    """Return the median, and the distance from the fastest to the slowest as a share of it."""
    median = statistics.median(seconds)
    return {"seconds": median, "spread": round((max(seconds) - min(seconds)) / median, 3)}


def median_and_range(numbers: Sequence[float]) -> dict[str, float]:
    """Return the median, the least and the most."""
    return {"median": statistics.median(numbers), "least": min(numbers), "most": max(numbers)}


def over(seconds: Sequence[float], own: Sequence[float]) -> dict[str, float]:
    """Return the median and the range of another's times over ours, round by round."""
    return median_and_range([other / ours for other, ours in zip(seconds, own, strict=True)])


def shown_range(ratio: dict[str, float]) -> str:
    """Return "1.50 (1.48 to 1.53)"."""
    return f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"


def ratio_table(models: Mapping[str, Mapping[str, Mapping[str, Any]]], ratio: str) -> str:
    """Return a table in Markdown: of each case and model a ratio's median, and its range over the rounds."""
    lines = [f"| case | {' | '.join(models)} |", f"|{' --- |' * (len(models) + 1)}"]
    for case in next(iter(models.values())):
        lines.append(f"| {case} | {' | '.join(shown_range(rows[case][ratio]) for rows in models.values())} |")
    return "\n".join(lines)


class Used(NamedTuple):
    """What a process took."""

    cpu_seconds: float
    """User and system together."""
    peak_bytes: int
    """The most memory that it held."""
    output: str


_WAIT = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[2:])
_, status, used = os.wait4(process.pid, 0)
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss], file)
os._exit(0)
"""
# A small process in between: Linux counts what the parent holds as the child's peak.


def fresh_process(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] = MappingProxyType({})
) -> Used:
    """Run a command in a folder, and return what it took. Ends the program if the command fails."""
    with tempfile.TemporaryFile("w+") as out, tempfile.NamedTemporaryFile("r") as used:
        given = [sys.executable, "-I", "-c", _WAIT, used.name, *command]
        subprocess.run(given, cwd=folder, env={**os.environ, **environment}, stdout=out, stderr=out, check=True)
        out.seek(0)
        output = out.read()
        code, seconds, kibibytes = json.load(used)
    if code:
        sys.exit(f"{' '.join(map(str, command))}: {output}")
    return Used(seconds, kibibytes * 1024, output)


def peak_bytes(run: Callable[[], object], device: str) -> int:
    """Return the bytes that a run holds at most, beyond what is held before it. On a CPU: in a fresh process."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the inputs
    before = _resident("VmRSS")
    run()
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None, "Peak memory is read in /proc, on Linux only."
    return int(found[1]) * 1024


def matrix_rate(size: int = 8192, rounds: int = 10) -> float:
    """Return the bf16 FLOP/s of a square matrix product of random data: zeros would run faster."""
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(left)
    for _ in range(3):
        torch.mm(left, right, out=out)
    seconds = [seconds_of(lambda: torch.mm(left, right, out=out), "cuda", 3) for _ in range(rounds)]
    return 2 * size**3 / statistics.median(seconds)


def require(device: str) -> None:
    """End the program unless this machine has the device."""
    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("--device cuda: there is no CUDA device here; give --device cpu.")


def program(script: str) -> list[str]:
    """Return the command that runs a benchmark's file in a fresh process, without its options."""
    return [sys.executable, str(BENCHMARKS), _name(script)]


def _name(script: str) -> str:
    return f"{Path(script).parent.name}.{Path(script).stem}"


def origin(script: str, argv: list[str], device: str) -> dict[str, Any]:
    """Return what every result says of itself."""
    return {
        "date": datetime.date.today().isoformat(),
        "command": f"python tests/benchmarks {published_command([_name(script), *argv])}",
        "versions": {"emobench": emobench.__version__, **_versions()},
        "not_installed": [name for name in PEERS if _version(name) is None],
        "hardware": hardware(device),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def hardware(device: str) -> str:
    """Return the name of the device that ran, and the cores beside it."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


def write(found: dict[str, Any], out: Path) -> None:
    """Write a result."""
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


def _versions() -> dict[str, str]:
    names = ("torch", "triton", "transformers", "accelerate", *PEERS)
    return {name: found for name in names if (found := _version(name)) is not None}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
