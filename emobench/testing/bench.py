"""Time and memory of objectives, compared with cross-entropy, on this machine: `emobench objectives bench`.

Legend: B rows, T positions of a row, N tokens, V vocabulary, D width, U distinct targets.

It measures the forward and backward pass of head and loss. Labels and side data are prepared before; the cost of a
teacher's forward pass is not included.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from emobench.core.conformance import Broken
from emobench.core.errors import ConfigError, PluginError, RunError
from emobench.objectives import (
    LogitsObjective,
    Objective,
    StatisticsObjective,
    TokenStatistics,
    objective_loss,
    prepare_for,
)
from emobench.runs.execution.record import hardware
from emobench.testing.subject import CheckedObjective, level

CROSS_ENTROPY, LIKELIHOOD = "cross-entropy (torch)", "mle (engine)"
"""Row names. No objective can have them."""
ROW = 512
"""Largest number of positions of a row. Some side data grow with its square."""
LEAST_SECONDS = 0.03
"""A step is repeated for at least this time: a single step on a GPU would include the launch by the CPU."""


@dataclass(frozen=True)
class LossCost:
    """The cost of one loss: the median CPU or GPU time of a step, and memory in bytes."""

    loss: str
    milliseconds: float
    spread: float
    """Slowest minus fastest round, divided by the median."""
    x_cross_entropy: float
    x_mle: float
    step_bytes: int
    """Peak memory within a step, without the inputs and the gradients dX and dW."""
    held_bytes: int
    """Memory between steps: `frozen_state()`, without a teacher."""


@dataclass(frozen=True)
class BenchResult:
    """The measurements, and how they were made."""

    tokens: int
    vocabulary: int
    width: int
    distinct_share: float
    """U/N of the targets."""
    dtype: str
    device: str
    hardware: str
    threads: int
    rounds: int
    clock: str
    memory: str
    losses: list[LossCost]


class _Likelihood(StatisticsObjective):
    """-log q_t: the cheapest loss in the engine."""

    def loss(self, s: TokenStatistics) -> Tensor:
        return -s.log_prob

    def slopes(self, s: TokenStatistics) -> Mapping[str, Tensor]:
        return {"log_prob": torch.full_like(s.log_prob, -1)}


class _Inputs:
    """Random hidden states and head with gradients, and tokens with the frequencies of text."""

    def __init__(self, shape: tuple[int, int, int], device: str, dtype: torch.dtype) -> None:
        N, V, D = shape
        # Zipf-Mandelbrot. For 500 to 10,000 tokens, U/N is about that of WikiText-2 in GPT-2's tokens.
        most_V = ((torch.arange(V, dtype=torch.float64) + 3.7) ** -1.25).cumsum(0)
        drawn_BT = torch.rand(-(-N // ROW), min(ROW, N) + 1, generator=torch.Generator().manual_seed(0))
        ids_BT = torch.searchsorted(most_V / most_V[-1], drawn_BT.double()).clamp(max=V - 1)
        self.ids_BT = ids_BT.to(device)
        """Each row has one token more than targets: its first token."""
        generator = torch.Generator(device).manual_seed(0)
        hidden_ND = torch.randn(N, D, generator=generator, device=device).to(dtype)
        weight_VD = torch.randn(V, D, generator=generator, device=device).div_(D**0.5).to(dtype)
        self.hidden_ND, self.weight_VD = hidden_ND.requires_grad_(), weight_VD.requires_grad_()

    def aligned(self, value_BT: Tensor) -> Tensor:
        """Return the values at the labels, (N, ...)."""
        return value_BT[:, 1:].flatten(0, 1)[: len(self.hidden_ND)]

    def clear(self) -> None:
        self.hidden_ND.grad = self.weight_VD.grad = None


class _Benched(CheckedObjective):
    """An objective, set up with random models. All objectives share the inputs."""

    def __init__(self, objective: Objective, inputs: _Inputs) -> None:
        V, D = inputs.weight_VD.shape
        super().__init__(objective, tokens=len(inputs.hidden_ND), width=D, vocabulary=V)
        self.inputs = inputs

    @cached_property
    def weight_VD(self) -> Tensor:
        return self.inputs.weight_VD.detach()

    @cached_property
    def batch(self) -> dict[str, Tensor]:
        return self._batch(self.inputs.ids_BT, self.inputs.ids_BT)

    def _aligned(self, value_BT: Tensor, fill: int) -> Tensor:
        return self.inputs.aligned(value_BT)

    def loss(self) -> Callable[[], Tensor]:
        """Return a function that computes the mean loss. Raises PluginError for side data of a wrong shape."""
        objective, hidden_ND, weight_VD = self.ready, self.inputs.hidden_ND, self.inputs.weight_VD
        targets = prepare_for(objective, self.labels_N, vocabulary=self.vocabulary, dtype=weight_VD.dtype)
        side = {}
        try:
            for name, value in self.side.items():  # random columns are float64, but training uses float32
                value = value.float() if value.dtype == torch.float64 else value
                side[name] = value.to(hidden_ND.device)
        except Broken as problem:
            raise PluginError(f"{objective.name}: {problem}. See `emobench objectives check`.") from None
        given: dict[str, Any] = {"side": side, "denominator": len(targets)}
        return lambda: objective_loss(objective, hidden_ND, weight_VD, None, targets, **given).total


def measure(
    objectives: Mapping[str, Objective],
    shape: tuple[int, int, int],
    *,
    device: str = "cpu",
    dtype: str = "float32",
    rounds: int = 5,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BenchResult:
    """Measure objectives by name, for a shape (tokens, vocabulary, width).

    Raises ConfigError for a ModelObjective, RunError if the shape does not fit into memory.
    """
    for name, objective in objectives.items():
        if not isinstance(objective, (StatisticsObjective, LogitsObjective)):
            raise ConfigError(
                f"'{name}' is a function of the {level(objective)} and the batch: it has no loss of tokens that could "
                f"be measured alone. Time a training: `emobench train --objective {name}`."
            )
    held = {CROSS_ENTROPY: 0}
    peaks: dict[str, int] = {}
    runs: dict[str, Callable[[], None]] = {}
    with _enough_memory(shape, device):
        inputs = _Inputs(shape, device, getattr(torch, dtype))
        labels_N = inputs.aligned(inputs.ids_BT)

        def cross_entropy() -> Tensor:
            return F.cross_entropy((inputs.hidden_ND @ inputs.weight_VD.T).float(), labels_N)

        runs[CROSS_ENTROPY] = _step(inputs, cross_entropy)
        for name, objective in {LIKELIHOOD: _Likelihood(), **objectives}.items():
            subject = _Benched(objective, inputs)
            runs[name] = _step(inputs, subject.loss())
            held[name] = sum(tensor.nbytes for tensor in subject.ready.frozen_state().values())
        seconds = alternating_seconds(runs, device, rounds, progress)
        for name, run in runs.items():
            inputs.clear()  # free the gradients of the last step
            peaks[name] = peak_bytes(run, device) - inputs.hidden_ND.nbytes - inputs.weight_VD.nbytes
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    losses = []
    for name, median in medians.items():
        cost = LossCost(
            name,
            milliseconds=1e3 * median,
            spread=(max(seconds[name]) - min(seconds[name])) / median,
            x_cross_entropy=median / medians[CROSS_ENTROPY],
            x_mle=median / medians[LIKELIHOOD],
            step_bytes=peaks[name],
            held_bytes=held[name],
        )
        losses.append(cost)
    cuda = inputs.hidden_ND.is_cuda
    return BenchResult(
        *shape,
        distinct_share=len(labels_N.unique()) / len(labels_N),
        dtype=dtype,
        device=device,
        hardware=hardware(device),
        threads=torch.get_num_threads(),
        rounds=rounds,
        clock="CUDA events" if cuda else "CPU time, the sum over threads",
        memory="torch's allocations on the GPU" if cuda else "torch's allocations, by its profiler",
        losses=losses,
    )


def _step(inputs: _Inputs, loss: Callable[[], Tensor]) -> Callable[[], None]:
    def run() -> None:
        inputs.clear()
        loss().backward()

    return run


@contextmanager
def _enough_memory(shape: tuple[int, int, int], device: str) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            given = ",".join(map(str, shape))
            raise RunError(f"--shape {given} does not fit the memory of {device}; give a smaller one.") from None
        raise


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
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(times):
            run()
        end.record()
        end.synchronize()
    return begin.elapsed_time(end) / 1e3 / times


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
