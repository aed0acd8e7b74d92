"""Time and peak memory of head and loss, forward and backward: the chunked engine against whole logits.

    python tests/benchmarks/linear_loss.py [--device cpu|cuda] [--out FILE]

Time: all variants in one process, in an order that is reversed at each repetition; medians; process CPU time on one
thread (on a GPU: wall time between synchronisations). Memory: one fresh process for each variant; the highest
resident set less that before the loss (on a GPU: torch's peak of allocated memory, likewise). Targets are Zipf-like,
so that their distinct share is that of real text. The CUDA path is complete, but nobody has measured with it yet.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import emobench
from emobench.objectives import CostEmbedding, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

try:
    from emo import EMOLoss  # the official loss, from the package EMOLoss
except ImportError:
    EMOLoss = None

RESULTS = Path(__file__).parent / "results"


@dataclass
class Problem:
    """Inputs of one call; hidden states and head are leaves that collect gradients."""

    hidden_ND: Tensor
    head_VD: Tensor
    targets_N: Tensor
    cost: CostEmbedding

    @staticmethod
    def make(options: argparse.Namespace) -> Problem:
        rng = torch.Generator().manual_seed(0)
        dtype = getattr(torch, options.dtype)
        hidden_ND = torch.randn(options.tokens, options.width, generator=rng).to(options.device, dtype)
        head_VD = torch.randn(options.vocabulary, options.width, generator=rng).div_(options.width**0.5)
        frequency_V = (
            torch.arange(options.vocabulary) + 2.7
        ) ** -1.25  # Zipf-Mandelbrot; U/N as of GPT-2 on WikiText-2
        targets_N = torch.multinomial(frequency_V, options.tokens, replacement=True, generator=rng)
        head_VD = head_VD.to(options.device, dtype)
        cost = CostEmbedding(head_VD, dtype=None if dtype == torch.float32 else dtype)
        return Problem(hidden_ND.requires_grad_(), head_VD.requires_grad_(), targets_N.to(options.device), cost)

    def engine(self, objective: emobench.StatisticsObjective, impl: str) -> Tensor:
        """Return the mean loss by our engine."""
        objective.use_cost(self.cost)
        result = objective_loss(objective, self.hidden_ND, self.head_VD, None, self.targets_N, impl=impl)
        return result.total / result.count


def cross_entropy(p: Problem) -> Tensor:
    return F.cross_entropy((p.hidden_ND @ p.head_VD.T).float(), p.targets_N)


def official(p: Problem) -> Tensor:
    assert EMOLoss is not None
    # It shifts by itself: the last hidden state and the first label go unused.
    hidden_ND = torch.cat([p.hidden_ND, p.hidden_ND[:1]])
    labels_N = torch.cat([p.targets_N[:1], p.targets_N])
    return EMOLoss((hidden_ND @ p.head_VD.T)[None], labels_N[None], p.head_VD.detach())


VARIANTS: dict[str, Callable[[Problem], Tensor]] = {
    "cross-entropy, whole logits": cross_entropy,
    "mle, chunked": lambda p: p.engine(Mle(), "chunked"),
    "emo, chunked": lambda p: p.engine(Emo(), "chunked"),
    "emo, whole logits": lambda p: p.engine(Emo(), "reference"),
    **({"emo, official": official} if EMOLoss is not None else {}),
}
BASELINE = "cross-entropy, whole logits"


def step(problem: Problem, name: str) -> None:
    """Run one variant forward and backward."""
    problem.hidden_ND.grad = problem.head_VD.grad = None
    VARIANTS[name](problem).backward()
    if problem.hidden_ND.is_cuda:
        torch.cuda.synchronize()


def measure_seconds(problem: Problem, repetitions: int) -> dict[str, float]:
    """Return the median time of each variant; on a GPU after a round that is not counted."""
    clock = time.perf_counter if problem.hidden_ND.is_cuda else time.process_time
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    warm_up = int(problem.hidden_ND.is_cuda)
    for repetition in range(repetitions + warm_up):
        for name in sorted(VARIANTS, key=list(VARIANTS).index, reverse=repetition % 2 == 1):
            start = clock()
            step(problem, name)
            if repetition >= warm_up:
                seconds[name].append(clock() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def measure_peak(problem: Problem, name: str) -> int:
    """Return the bytes that one step of a variant holds at most, beyond its inputs; in a fresh process."""
    if problem.hidden_ND.is_cuda:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step(problem, name)
        return torch.cuda.max_memory_allocated() - before
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the inputs
    before = _resident("VmRSS")
    step(problem, name)
    return _resident("VmHWM") - before


def _resident(field: str) -> int:
    status = Path("/proc/self/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    if found is None:
        sys.exit(f"/proc/self/status has no {field}; peak memory is read there, on Linux only.")
    return int(found[1]) * 1024


def peak_in_fresh_process(name: str, argv: list[str]) -> int:
    """Run this script for the peak memory of one variant."""
    command = [sys.executable, __file__, *argv, "--peak-of", name]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(problem: Problem, options: argparse.Namespace, argv: list[str]) -> dict[str, Any]:
    """Measure everything; returns what is written."""
    seconds = measure_seconds(problem, options.repetitions)
    gradients = sum(t.numel() * t.element_size() for t in (problem.hidden_ND, problem.head_VD))
    rows = {}
    for name in VARIANTS:
        peak = peak_in_fresh_process(name, argv)
        ratios = {f"x {other}": round(seconds[name] / seconds[other], 3) for other in (BASELINE, *list(VARIANTS)[4:])}
        rows[name] = {"seconds": round(seconds[name], 4), **ratios, "peak_bytes": peak, "net_bytes": peak - gradients}
    return {
        "date": datetime.date.today().isoformat(),
        "command": f"python tests/benchmarks/{Path(__file__).name} {' '.join(argv)}".strip(),
        "versions": {name: version(name) for name in ("emobench", "torch", *(["EMOLoss"] if EMOLoss else []))},
        "hardware": _hardware(options.device),
        "threads": torch.get_num_threads(),
        "shape": {name: getattr(options, name) for name in ("tokens", "vocabulary", "width", "dtype")},
        "distinct_share": round(len(problem.targets_N.unique()) / options.tokens, 3),
        "repetitions": options.repetitions,
        "gradient_bytes": gradients,
        "variants": rows,
    }


def _hardware(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    models = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{models[0] if models else platform.processor()}, {os.cpu_count()} cores"


def show(found: dict[str, Any]) -> None:
    """Print a small table."""
    shape = found["shape"]
    print(f"{shape}, U/N = {found['distinct_share']}, {found['hardware']}, {found['threads']} thread(s)")
    print(f"{'':30}{'seconds':>9}{'x CE':>7}{'x official':>12}{'peak MiB':>10}{'net of dX+dW':>14}")
    for name, row in found["variants"].items():
        against = row.get("x emo, official", float("nan"))
        peak, net = (round(row[key] / 2**20) for key in ("peak_bytes", "net_bytes"))
        print(f"{name:30}{row['seconds']:9.3f}{row[f'x {BASELINE}']:7.2f}{against:12.2f}{peak:10}{net:14}")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16", "float16"), default="float32")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--vocabulary", type=int, default=50257)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write; default: results/linear_loss-DEVICE.json beside this")
    parser.add_argument("--peak-of", choices=list(VARIANTS), help="print the peak bytes of one variant, and stop")
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    problem = Problem.make(options)
    if options.peak_of:
        print(measure_peak(problem, options.peak_of))
        return
    found = report(problem, options, argv)
    show(found)
    out = options.out or RESULTS / f"linear_loss-{options.device}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
