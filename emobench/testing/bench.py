"""Time and memory of losses on this machine, beside cross-entropy: `emobench objectives bench`.

It measures the forward and backward pass of head and loss. Labels and side data are prepared before, so the forward
pass of a teacher is not included. Legend: B rows, T positions of a row, N tokens, V vocabulary, D width.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.benchmark import Timer

from emobench.core.conformance import Explained
from emobench.core.errors import ConfigError, PluginError, RunError
from emobench.objectives import LogitsObjective, Objective, StatisticsObjective, objective_loss, prepare_for
from emobench.testing.subject import CheckedObjective, level

CROSS_ENTROPY = "cross-entropy (torch)"
"""A row's name that no objective can have."""
ROUNDS = 5
LEAST_SECONDS = 0.03
"""A step is repeated for at least this time in each round."""
ROW = 512
"""Largest number of positions of a row. Some side data grow with its square."""


@dataclass(frozen=True)
class LossCost:
    """The cost of one loss: the median time of a step, and memory in bytes."""

    loss: str
    milliseconds: float
    spread: float
    """Slowest minus fastest round, divided by the median."""
    x_cross_entropy: float
    step_bytes: int
    """Peak memory within a step, without the inputs and the gradients of hidden states and head."""
    held_bytes: int
    """Memory between steps: `frozen_state()`, without a teacher."""


class _Benched(CheckedObjective):
    """An objective with random models on a device, and tokens with the frequencies of text."""

    def __init__(self, objective: Objective, weight_VD: Tensor, tokens: int) -> None:
        super().__init__(objective, tokens=tokens, width=weight_VD.shape[1], vocabulary=len(weight_VD))
        self._weight_VD = weight_VD

    @property
    def pretrained_VD(self) -> Tensor:
        return self._weight_VD.detach()

    @cached_property
    def batch(self) -> dict[str, Tensor]:
        # Zipf-Mandelbrot: for 500 to 10,000 tokens, the share of distinct ones is about that of WikiText-2 in GPT-2's.
        rank_V = torch.arange(self.vocabulary, dtype=torch.float64)
        frequency_V = (rank_V + 3.7) ** -1.25
        rows, positions = math.ceil(self.tokens / ROW), min(ROW, self.tokens) + 1
        drawn = torch.multinomial(frequency_V, rows * positions, replacement=True, generator=self._generator(0))
        ids_BT = drawn.view(rows, positions).to(self.weight_VD.device)
        return self._batch(ids_BT, ids_BT)

    def _aligned(self, value_BT: Tensor, fill: int) -> Tensor:
        # A row has one token more than targets: its first one.
        return value_BT[:, 1:].flatten(0, 1)[: self.tokens]

    def loss(self, hidden_ND: Tensor, weight_VD: Tensor) -> Callable[[], Tensor]:
        """Return a function that computes the mean loss. Raises PluginError for side data of a wrong shape."""
        targets = prepare_for(self.ready, self.labels_N, vocabulary=self.vocabulary, dtype=weight_VD.dtype)
        try:
            prepared = self.side
        except Explained as problem:
            raise PluginError(f"{self.name}: {problem}. See `emobench objectives check`.") from None
        side = {}
        for name, value in prepared.items():  # random columns are float64, but training uses float32
            side[name] = (value.float() if value.dtype == torch.float64 else value).to(weight_VD.device)
        given: dict[str, Any] = {"side": side, "denominator": len(targets)}
        return lambda: objective_loss(self.ready, hidden_ND, weight_VD, None, targets, **given).total


def measure(
    objectives: Mapping[str, Objective],
    shape: tuple[int, int, int],
    *,
    device: str,
    dtype: str,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[LossCost]:
    """Measure cross-entropy and objectives by name, for a shape (tokens, vocabulary, width).

    The losses alternate in each round. Raises ConfigError for a ModelObjective, RunError for too large a shape.
    """
    N, V, D = shape
    for name, objective in objectives.items():
        if not isinstance(objective, (StatisticsObjective, LogitsObjective)):
            raise ConfigError(
                f"'{name}' is a function of the {level(objective)} and the batch, so its loss cannot be measured "
                f"alone. Time a training: `emobench train --objective {name}`."
            )
    generator = torch.Generator(device).manual_seed(0)
    try:
        hidden_ND = torch.randn(N, D, generator=generator, device=device).to(getattr(torch, dtype)).requires_grad_()
        weight_VD = torch.randn(V, D, generator=generator, device=device).div_(D**0.5).to(hidden_ND.dtype)
        weight_VD.requires_grad_()
        subjects = {name: _Benched(objective, weight_VD, N) for name, objective in objectives.items()}
        labels_N = next(iter(subjects.values())).labels_N
        losses = {CROSS_ENTROPY: lambda: F.cross_entropy((hidden_ND @ weight_VD.T).float(), labels_N)}
        losses |= {name: subject.loss(hidden_ND, weight_VD) for name, subject in subjects.items()}

        def step(loss: Callable[[], Tensor]) -> None:
            hidden_ND.grad = weight_VD.grad = None
            loss().backward()

        seconds, peaks, timers = {}, {}, {}
        for name, loss in losses.items():
            step(loss)  # loads and compiles
            given = {"step": step, "loss": loss}
            timers[name] = Timer("step(loss)", globals=given, num_threads=torch.get_num_threads())
            hidden_ND.grad = weight_VD.grad = None
            peaks[name] = peak_bytes(partial(step, loss), device) - hidden_ND.nbytes - weight_VD.nbytes
            seconds[name] = []
        for number in range(ROUNDS):
            for place, (name, timer) in enumerate(timers.items(), 1):
                seconds[name].append(timer.blocked_autorange(min_run_time=LEAST_SECONDS).mean)
                progress(number * len(timers) + place, ROUNDS * len(timers))
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise RunError(f"--shape {N},{V},{D} does not fit the memory of {device}; give a smaller one.") from None
        raise
    costs = []
    for name, times in seconds.items():
        median = statistics.median(times)
        held = subjects[name].ready.frozen_state().values() if name in subjects else ()
        cost = LossCost(
            name,
            milliseconds=1e3 * median,
            spread=(max(times) - min(times)) / median,
            x_cross_entropy=median / statistics.median(seconds[CROSS_ENTROPY]),
            step_bytes=peaks[name],
            held_bytes=sum(tensor.nbytes for tensor in held),
        )
        costs.append(cost)
    return costs


def peak_bytes(run: Callable[[], None], device: str) -> int:
    """Return the peak bytes of tensors during a run, minus those before it."""
    if torch.device(device).type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    # The resident memory of the process includes what earlier steps freed. The log level stops a message on stderr.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    profiler: Any = profile.profiler  # its events have no public type
    events = [e for e in profiler.kineto_results.events() if e.name() == "[memory]"]
    return max(accumulate(e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())))
