"""The problem that `linear_loss.py` measures: hidden states, head and targets, and each way to a loss.

Legend: N tokens, V vocabulary, D width, L layers of a body, U distinct targets, C tokens of a chunk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch
from flops import FLOP_FORMULAS
from measuring import text_like_tokens
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from emobench.objectives import CostEmbedding, StatisticsObjective, Targets, objective_loss, prepare_for
from emobench.objectives.engine.linear import rows_for
from emobench.objectives.engine.products import padded
from emobench.training.memory import keepable_bytes
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

OWN: dict[str, type[StatisticsObjective]] = {"mle": Mle, "emo": Emo, "emo-cached": Emo}


@dataclass
class Problem:
    """Inputs of one call; hidden states, or what a body makes them of, and head are leaves that collect gradients."""

    hidden_ND: Tensor
    head_VD: Tensor
    targets_N: Tensor
    own: dict[str, StatisticsObjective]
    prepared: dict[str, Targets]
    kept: int
    """Cost rows that `emo-cached` keeps: as many as a training by default; on a CPU 4,096, about as many."""
    body: nn.Module = field(default_factory=nn.Identity)

    @staticmethod
    def make(shape: tuple[int, ...], dtype: str, device: str, only: Collection[str] = tuple(OWN)) -> Problem:
        """Return the problem of a shape N, V, D or N, V, D, L."""
        N, V, D, *layers = shape
        rng = torch.Generator().manual_seed(0)
        targets_N = text_like_tokens((N,), V, rng).to(device)
        there = torch.Generator(device).manual_seed(0)
        hidden_ND = torch.randn(N, D, generator=there, device=device).to(getattr(torch, dtype))
        head_VD = torch.randn(V, D, generator=there, device=device).div_(D**0.5).to(getattr(torch, dtype))
        kept = min(V, 4096 if device == "cpu" else keepable_bytes(head_VD.device) // (2 * V))
        own = {name: objective() for name, objective in OWN.items() if name in only}
        if "emo" in own:
            own["emo"].use_cost(_cost(head_VD))
        if "emo-cached" in own:
            own["emo-cached"].use_cost(_cost(head_VD, kept))
        problem = Problem(hidden_ND.requires_grad_(), head_VD.requires_grad_(), targets_N, own, {}, kept)
        problem.prepared = {name: problem.prepare(name) for name in own}
        if layers:
            problem.body = _body(D, *layers).to(device, head_VD.dtype)
        return problem

    def prepare(self, name: str, chunk_bytes: int | None = None) -> Targets:
        """Prepare the labels for one of our objectives."""
        V, dtype = len(self.head_VD), self.head_VD.dtype
        return prepare_for(self.own[name], self.targets_N, vocabulary=V, dtype=dtype, chunk_bytes=chunk_bytes)

    def step(self, name: str) -> Callable[[], None]:
        """Return a call that runs a variant forward and backward."""

        def run() -> None:
            self.hidden_ND.grad = self.head_VD.grad = None
            self.body.zero_grad()
            VARIANTS[name](self).backward()

        return run

    def states(self) -> Tensor:
        """Return what the head reads: the hidden states after the body, if there is one."""
        return self.body(self.hidden_ND)

    def mean_loss(self, name: str) -> Tensor:
        """Return the mean loss by our engine."""
        targets = self.prepared[name]
        objective, states_ND = self.own[name], self.states()
        return objective_loss(objective, states_ND, self.head_VD, None, targets, denominator=len(targets)).total

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self.targets_N), *self.head_VD.shape  # type: ignore[return-value]

    @property
    def distinct(self) -> int:
        """U."""
        return len(self.targets_N.unique())

    @property
    def missing(self) -> int:
        """Distinct targets without a row in a cache of the most frequent tokens, whose ids come first."""
        return int((self.targets_N.unique() >= self.kept).sum())

    @property
    def gradient_bytes(self) -> int:
        """Bytes of dX and dW in the dtypes of X and W."""
        return sum(t.numel() * t.element_size() for t in (self.hidden_ND, self.head_VD))


def _cost(head_VD: Tensor, kept: int = 0) -> CostEmbedding:
    # As a training keeps it: float16 on a GPU.
    cost = CostEmbedding(head_VD, dtype=torch.float16 if head_VD.is_cuda else None)
    if kept:
        cost.keep(torch.arange(kept, device=head_VD.device))
        if not head_VD.is_cuda:
            # Made now, not within the step whose memory is measured.
            cost.kept_rows(torch.float32, rows_for("chunked", head_VD.device, head_VD.dtype).row_multiple)
    return cost


def _body(width: int, layers: int) -> nn.Module:
    """Return layers of a transformer on sequences of 256 tokens."""
    layer = nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0, batch_first=True, norm_first=True)
    stack = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return nn.Sequential(nn.Unflatten(0, (-1, 256)), stack, nn.Flatten(0, 1))


def _cross_entropy(p: Problem) -> Tensor:
    return F.cross_entropy((p.states() @ p.head_VD.T).float(), p.targets_N)


def _official(p: Problem) -> Tensor:
    from emo import EMOLoss  # type: ignore[import-not-found]  # the package EMOLoss

    # It shifts by itself: the last hidden state and the first label go unused.
    hidden_ND = p.states()
    hidden_ND = torch.cat([hidden_ND, hidden_ND[:1]])
    labels_N = torch.cat([p.targets_N[:1], p.targets_N])
    return EMOLoss((hidden_ND @ p.head_VD.T)[None], labels_N[None], p.head_VD.detach())


def _liger(p: Problem, **options: Any) -> Tensor:
    from liger_kernel.transformers.functional import liger_fused_linear_cross_entropy  # type: ignore[import-not-found]

    return liger_fused_linear_cross_entropy(p.states(), p.head_VD, p.targets_N, **options)


def _cut_cross_entropy(p: Problem) -> Tensor:
    from cut_cross_entropy import linear_cross_entropy  # type: ignore[import-not-found]

    return linear_cross_entropy(p.states(), p.head_VD, p.targets_N)


VARIANTS: dict[str, Callable[[Problem], Tensor]] = {
    "cross-entropy": _cross_entropy,
    "mle": lambda p: p.mean_loss("mle"),
    "emo": lambda p: p.mean_loss("emo"),
    "emo-cached": lambda p: p.mean_loss("emo-cached"),
    "official": _official,
    "liger": _liger,
    "liger-8": lambda p: _liger(p, chunk_mem_const=8),
    # The only one of Liger's that adds dW in single precision, as ours does.
    "liger-float32": lambda p: _liger(p, accum_dtype=torch.float32),
    "cce": _cut_cross_entropy,
}
_PACKAGES = {"official": "emo", "liger": "liger_kernel", "liger-8": "liger_kernel", "liger-float32": "liger_kernel"}


def available(name: str, problem: Problem) -> bool:
    """Return whether a variant can run here: its package is installed, and its kernels have a device."""
    if name in OWN:
        return name in problem.own
    on_device = problem.hidden_ND.is_cuda or name in ("cross-entropy", "official")
    interpreted = name.startswith("liger") and os.environ.get("TRITON_INTERPRET") == "1"
    package = {**_PACKAGES, "cce": "cut_cross_entropy"}.get(name)
    return (on_device or interpreted) and (package is None or find_spec(package) is not None)


class _Largest(TorchDispatchMode):
    """The elements of the largest tensor that owns new memory and has not the head's shape."""

    def __init__(self, head: torch.Size) -> None:
        super().__init__()
        self.head = head
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            if isinstance(result, Tensor) and declared.alias_info is None and result.shape != self.head:
                self.elements = max(self.elements, result.numel())
        return out


def count(problem: Problem) -> dict[str, int]:
    """Return EMO's FLOPs and largest new tensor, and what they may be at most; no clock is needed."""
    N, V, D = problem.shape
    if len(problem.prepared["emo"].chunks) == 1:  # a small problem: a bound of a quarter, so that there is one to see
        problem.prepared["emo"] = problem.prepare("emo", N * V * problem.head_VD.element_size() // 4)
    targets = problem.prepared["emo"]
    rows = max(targets.most_tokens, targets.most_distinct)
    row = padded(V, rows_for("chunked", problem.head_VD.device, problem.head_VD.dtype).row_multiple)
    with (
        FlopCounterMode(display=False, custom_mapping=FLOP_FORMULAS) as flops,
        _Largest(problem.head_VD.shape) as largest,
    ):
        problem.step("emo")()
    problem.prepared["emo"] = problem.prepare("emo")
    return {
        "chunks": len(targets.chunks),
        "flops": flops.get_total_flops(),
        "flops_exact": (6 * N + 2 * problem.distinct) * V * D,
        "largest_elements": largest.elements,
        "largest_allowed": rows * row,
        "logits_elements": N * V,
    }
