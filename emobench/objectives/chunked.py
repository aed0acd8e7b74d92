"""The chunked engine: loss and gradients of hidden states and head, without the logits of a batch.

Legend: N tokens, C tokens of a chunk, R rows of a block, U distinct targets of a chunk, V vocabulary, D hidden width.

For each chunk the engine makes logits, reduces them to the statistics that the objective needs, calls `loss` on those
small vectors under autograd (one slope per token and statistic), overwrites the logits by their gradient, and adds to
dX and dW. Backward only scales.

Precision: inputs are multiplied as they are; logits, statistics, losses and the sums of dW are float32 (float64 for
float64 inputs). Gradients are never divided by the token count here: in float16 that would flush most of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from emobench.errors import PluginError
from emobench.objectives.base import LogitsObjective
from emobench.objectives.job import Job
from emobench.objectives.logits import accumulator_dtype, chunk_buffer, make_logits, map_slope
from emobench.objectives.rows import differentiate_rows, reduce_rows
from emobench.objectives.statistics import TokenStatistics
from emobench.objectives.targets import Chunk

BLOCK_BYTES = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Bytes of the row blocks of the elementwise passes: on a CPU they stay in its cache."""


class ChunkedLoss(torch.autograd.Function):
    """`ChunkedLoss.apply(hidden_ND, weight_VD, bias_V, job)` is the summed loss; its gradients are made in forward."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: Job) -> Tensor:  # type: ignore[override]
        accumulator = accumulator_dtype(job.dtype)
        grads = _Gradients(hidden_ND, weight_VD, bias_V, accumulator) if job.with_grad else None
        weight_VD = weight_VD.to(job.dtype)
        bias_V = None if bias_V is None else bias_V.to(job.dtype)
        # One buffer for all chunks: fresh pages for each would cost a CPU some 5 % of the time.
        buffer_CV = chunk_buffer(job.targets, weight_VD, with_cost=job.cost is not None)
        for chunk in job.targets.chunks:
            positions_C = job.targets.order_M[chunk.start : chunk.stop]
            hidden_CD = hidden_ND[positions_C].to(job.dtype)
            logits_CV = make_logits(hidden_CD, weight_VD, bias_V, job.logit_map, out=buffer_CV)
            _differentiate_chunk(job, chunk, logits_CV, cost_rows(buffer_CV, chunk))
            if grads is not None:
                grads.add(logits_CV, hidden_CD, weight_VD, positions_C)
        ctx.grads = grads
        return torch.cat(job.losses).sum(dtype=torch.float64).to(accumulator)

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if ctx.grads is None:
            raise RuntimeError(
                "The chunked engine gives its gradients away once, to hold one copy of the head's gradient; "
                "call objective_loss(..., impl='reference') to go backward twice through one forward."
            )
        grads, ctx.grads = ctx.grads, None
        return (*grads.scaled(grad_total), None)


class _Gradients:
    """The sums of dX, dW and db over chunks; None where nobody wants them."""

    def __init__(self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, accumulator: torch.dtype) -> None:
        self.dtypes = [None if t is None else t.dtype for t in (hidden_ND, weight_VD, bias_V)]
        # A row of dX gets one chunk's product, so it needs no accumulator.
        self.hidden = _zeros_if_wanted(hidden_ND, hidden_ND.dtype)
        self.weight = _zeros_if_wanted(weight_VD, accumulator)
        self.bias = _zeros_if_wanted(bias_V, accumulator)

    def add(self, dlogits_CV: Tensor, hidden_CD: Tensor, weight_VD: Tensor, positions_C: Tensor) -> None:
        if self.bias is not None:
            self.bias += dlogits_CV.sum(dim=0)
        if self.hidden is None and self.weight is None:
            return
        low_CV = dlogits_CV.to(weight_VD.dtype)
        if self.hidden is not None:
            self.hidden[positions_C] = (low_CV @ weight_VD).to(self.hidden.dtype)
        if self.weight is None:
            return
        # addmm(out=) rather than addmm_, which torch's FLOP counter does not see.
        if low_CV.dtype != dlogits_CV.dtype and low_CV.is_cuda:
            torch.addmm(self.weight, low_CV.T, hidden_CD, out_dtype=self.weight.dtype, out=self.weight)
        else:
            # Only CUDA adds a half-precision product to a float32 sum; rounding each chunk's sum instead adds up.
            torch.addmm(self.weight, dlogits_CV.T, hidden_CD.to(dlogits_CV.dtype), out=self.weight)

    def scaled(self, scale: Tensor) -> list[Tensor | None]:
        """Return dX, dW and db times `scale`, each in the dtype of its input; they are used up."""
        return [_scaled(g, d, scale) for g, d in zip((self.hidden, self.weight, self.bias), self.dtypes, strict=True)]


def _zeros_if_wanted(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return torch.zeros_like(tensor, dtype=dtype) if tensor is not None and tensor.requires_grad else None


def _scaled(grad: Tensor | None, dtype: torch.dtype | None, scale: Tensor) -> Tensor | None:
    if grad is None:
        return None
    if grad.dtype in (torch.float32, torch.float64):
        return grad.mul_(scale).to(dtype)
    return (grad.to(scale.dtype) * scale).to(dtype)


def _differentiate_chunk(job: Job, chunk: Chunk, logits_CV: Tensor, out_UV: Tensor) -> None:
    """Note a chunk's losses, and overwrite its logits by d loss / d raw logits where gradients are wanted."""
    ids_C = job.targets.ids_M[chunk.start : chunk.stop]
    objective = job.objective
    if isinstance(objective, LogitsObjective):
        _differentiate_logits(job, objective, chunk, logits_CV, ids_C)
        return
    cost_UV = None if job.cost is None else job.cost.costs(chunk.distinct_U, out=out_UV)
    values = reduce_chunk(logits_CV, ids_C, chunk, cost_UV, objective.statistic_names)
    leaves = {name: values[name].requires_grad_(job.with_grad) for name in objective.statistic_names}
    s = TokenStatistics(leaves, ids_C, job.side(chunk))
    with torch.set_grad_enabled(job.with_grad):
        loss_C = objective.loss(s)
    job.note(loss_C, s)
    if not job.with_grad:
        return
    slopes = _slopes(loss_C, leaves, objective.name)
    values = {name: value.detach() for name, value in values.items()}
    for rows in _blocks(logits_CV):
        block_RV = logits_CV[rows]
        slope = map_slope(job.logit_map, block_RV)
        differentiate_rows(
            block_RV,
            ids_C[rows],
            None if cost_UV is None else cost_UV[chunk.inverse_C[rows]],
            {name: value[rows] for name, value in values.items()},
            {name: value[rows] for name, value in slopes.items()},
        )
        if slope is not None:
            block_RV.mul_(slope)


def _differentiate_logits(job: Job, objective: LogitsObjective, chunk: Chunk, logits_CV: Tensor, ids_C: Tensor) -> None:
    values = reduce_chunk(logits_CV, ids_C, chunk, None, frozenset())
    leaf_CV = logits_CV.detach().requires_grad_(job.with_grad)
    with torch.set_grad_enabled(job.with_grad):
        loss_C = objective.loss(leaf_CV, ids_C, job.side(chunk))
    job.note(loss_C, TokenStatistics(values, ids_C))
    if job.with_grad:
        gradient_CV = _slopes(loss_C, {"logits": leaf_CV}, objective.name)["logits"]
        slope = map_slope(job.logit_map, logits_CV)
        logits_CV.copy_(gradient_CV if slope is None else gradient_CV * slope)


def _slopes(loss_C: Tensor, leaves: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return d loss / d leaf of each leaf that the loss depends on."""
    if not loss_C.requires_grad:
        raise PluginError(
            f"{name}.loss depends on nothing that the model computes, so it trains nothing; use s.log_prob undetached."
        )
    found = torch.autograd.grad(loss_C, list(leaves.values()), torch.ones_like(loss_C), allow_unused=True)
    return {n: g for n, g in zip(leaves, found, strict=True) if g is not None}


def cost_rows(buffer_CV: Tensor, chunk: Chunk) -> Tensor:
    """Return the rows of a chunk's buffer that lie behind its logits, (U, V)."""
    tokens = chunk.stop - chunk.start
    return buffer_CV[tokens : tokens + len(chunk.distinct_U)]


def reduce_chunk(
    logits_CV: Tensor, ids_C: Tensor, chunk: Chunk, cost_UV: Tensor | None, needs: frozenset[str]
) -> dict[str, Tensor]:
    """Return the statistics of a chunk, each (C,), with `log_partition` among them."""
    blocks = [
        reduce_rows(logits_CV[rows], ids_C[rows], None if cost_UV is None else cost_UV[chunk.inverse_C[rows]], needs)
        for rows in _blocks(logits_CV)
    ]
    return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}


def _blocks(logits_CV: Tensor) -> list[slice]:
    """Return the slices of rows that the elementwise passes take; one, empty, for a chunk without tokens."""
    budget = BLOCK_BYTES.get(logits_CV.device.type, BLOCK_BYTES["cpu"])
    rows = max(1, budget // (logits_CV.element_size() * logits_CV.shape[1]))
    return [slice(start, start + rows) for start in range(0, max(1, len(logits_CV)), rows)]
