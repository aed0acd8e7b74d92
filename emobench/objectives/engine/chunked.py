"""The chunked engine: loss and gradients of hidden states and head, without the logits of a batch.

Legend: N tokens, C tokens of a chunk, U distinct targets of a chunk, V vocabulary, D hidden width.

For each chunk the engine makes logits, reduces them to the statistics that the objective needs, finds d loss / d
statistic on those small vectors (the objective's own `slopes`, or autograd), overwrites the logits by their gradient,
and adds to dX and dW. Backward only scales.

Precision: inputs are multiplied as they are; statistics, losses and the sums of dW are float32 (float64 for float64
inputs). Gradients are never divided by the token count here: in float16 that would flush most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from emobench.errors import PluginError
from emobench.objectives.base import LogitsObjective, StatisticsObjective
from emobench.objectives.cost import CostEmbedding, CostRows
from emobench.objectives.engine.backend import Rows
from emobench.objectives.engine.coefficients import coefficients
from emobench.objectives.engine.job import Job
from emobench.objectives.engine.logits import accumulator_dtype, row_buffer
from emobench.objectives.engine.products import add_product_wide
from emobench.objectives.engine.targets import Chunk
from emobench.objectives.engine.torch_rows import map_slope, square_sums
from emobench.objectives.statistics import TokenStatistics


class ChunkedLoss(torch.autograd.Function):
    """`ChunkedLoss.apply(hidden_ND, weight_VD, bias_V, job)` is the summed loss; its gradients are made in forward."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: Job) -> Tensor:  # type: ignore[override]
        total, ctx.grads = run_chunks(hidden_ND, weight_VD, bias_V, job)
        return total

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if ctx.grads is None:
            raise RuntimeError(
                "The chunked engine gives its gradients away once, to hold one copy of the head's gradient; "
                "call objective_loss(..., impl='reference') to go backward twice through one forward."
            )
        grads, ctx.grads = ctx.grads, None
        return (*grads.scaled(grad_total), None)


class Gradients:
    """The sums of dX, dW and db over chunks; None where nobody wants them."""

    def __init__(self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: Job) -> None:
        accumulator = accumulator_dtype(job.dtype)
        self.dtypes = [None if t is None else t.dtype for t in (hidden_ND, weight_VD, bias_V)]
        # A row of dX gets one chunk's product, so it needs no accumulator.
        self.hidden = _zeros_if_wanted(hidden_ND, hidden_ND.dtype)
        self.weight = torch.empty_like(weight_VD, dtype=accumulator) if weight_VD.requires_grad else None
        self.bias = _zeros_if_wanted(bias_V, accumulator)
        self._vocabulary = job.vocabulary
        self._first = True

    def add(self, dlogits_CV: Tensor, hidden_CD: Tensor, weight_VD: Tensor, positions_C: Tensor) -> None:
        """Add a chunk's part; `dlogits_CV` is in the dtype of the products, or wider."""
        if self.bias is not None:
            self.bias[: self._vocabulary] += dlogits_CV.sum(dim=0, dtype=self.bias.dtype)
        if self.hidden is not None:
            self.hidden[positions_C] = (dlogits_CV.to(weight_VD.dtype) @ weight_VD).to(self.hidden.dtype)
        if self.weight is not None:
            low_CV = dlogits_CV.to(weight_VD.dtype) if dlogits_CV.is_cuda else dlogits_CV
            # The first chunk's product is written: zeros, the head's size in float32, would be made and read again.
            add_product_wide(self.weight[: self._vocabulary], low_CV, hidden_CD, first=self._first)
            if self._first:
                self.weight[self._vocabulary :] = 0
        self._first = False

    def scaled(self, scale: Tensor) -> list[Tensor | None]:
        """Return dX, dW and db times `scale`, each in the dtype of its input; they are used up."""
        return [_scaled(g, d, scale) for g, d in zip((self.hidden, self.weight, self.bias), self.dtypes, strict=True)]


def run_chunks(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: Job
) -> tuple[Tensor, Gradients | None]:
    """Return the summed loss, and its gradients where the job wants them; the job notes losses and parts."""
    grads = Gradients(hidden_ND, weight_VD, bias_V, job) if job.with_grad else None
    weight_VD = weight_VD.detach()[: job.vocabulary].to(job.dtype)
    bias_V = None if bias_V is None else bias_V.detach()[: job.vocabulary].to(job.dtype)
    # One buffer for all chunks: fresh pages for each would cost a CPU some 5 % of the time.
    rows, targets, multiple = job.rows, job.targets, job.rows.row_multiple
    buffer_CV = row_buffer(weight_VD, targets.most_tokens, job.vocabulary, rows.logits_dtype(job.dtype), multiple)
    job.follow(weight_VD)
    cost_UV = None
    if job.cost is not None:
        cost_UV = row_buffer(weight_VD, targets.most_distinct, job.vocabulary, rows.cost_dtype(job.dtype), multiple)
    for chunk in targets.chunks:
        positions_C = targets.order_M[chunk.start : chunk.stop]
        hidden_CD = hidden_ND.detach()[positions_C].to(job.dtype)
        logits_CV = buffer_CV[: len(hidden_CD)]
        rows.make_logits(hidden_CD, weight_VD, bias_V, job.logit_map, logits_CV)
        _differentiate_chunk(job, chunk, logits_CV, cost_UV)
        if grads is not None:
            grads.add(logits_CV, hidden_CD, weight_VD, positions_C)
    job.note_together()
    return torch.cat(job.losses).sum(dtype=torch.float64).to(accumulator_dtype(job.dtype)), grads


def make_costs(cost: CostEmbedding, chunk: Chunk, buffer_UV: Tensor, rows: Rows) -> CostRows:
    """Write the chunk's new cost rows to the buffer, and return them beside the kept ones."""
    fresh_UV = cost.costs(chunk.distinct_U, out=buffer_UV[: len(chunk.distinct_U)])
    return CostRows(fresh_UV, cost.kept_rows(buffer_UV.dtype, rows.row_multiple), chunk.index_C)


def _differentiate_chunk(job: Job, chunk: Chunk, logits_CV: Tensor, cost_UV: Tensor | None) -> None:
    """Note a chunk's losses, and overwrite its logits by d loss / d raw output where gradients are wanted."""
    ids_C = job.targets.ids_M[chunk.start : chunk.stop]
    objective = job.objective
    if isinstance(objective, LogitsObjective):
        _differentiate_logits(job, objective, chunk, logits_CV, ids_C)
        return
    costs = None if job.cost is None or cost_UV is None else make_costs(job.cost, chunk, cost_UV, job.rows)
    values = job.rows.reduce(logits_CV, ids_C, costs, job.needs, job.logit_map)
    job.statistics.append(values)
    if not job.with_grad:
        return
    slopes = _slopes(job, objective, values, ids_C, job.side(chunk))
    numbers = coefficients(values, slopes, job.vocabulary)
    squares_C = job.rows.differentiate(logits_CV, ids_C, costs, values["log_partition"], numbers, job.logit_map)
    job.strengths.append(squares_C)


def _slopes(
    job: Job, objective: StatisticsObjective, values: dict[str, Tensor], ids_C: Tensor, side: Mapping[str, Tensor]
) -> Mapping[str, Tensor]:
    """Return d loss / d statistic of each token."""
    s = TokenStatistics({name: values[name] for name in objective.statistic_names}, ids_C, side)
    given = objective.slopes(s)
    if given is not None:
        job.check_slopes(given, s)
        return given
    leaves = {name: value.detach().requires_grad_() for name, value in s.values.items()}
    with torch.enable_grad():
        loss_C = objective.loss(TokenStatistics(leaves, ids_C, side))
    job.check_loss(loss_C, len(s))
    job.losses.append(loss_C.detach())
    return _gradients(loss_C, leaves, objective.name)


def _differentiate_logits(job: Job, objective: LogitsObjective, chunk: Chunk, logits_CV: Tensor, ids_C: Tensor) -> None:
    values = job.rows.reduce(logits_CV, ids_C, None, job.needs, job.logit_map)
    leaf_CV = logits_CV.detach().requires_grad_(job.with_grad)
    with torch.set_grad_enabled(job.with_grad):
        loss_C = objective.loss(leaf_CV, ids_C, job.side(chunk))
    job.note(loss_C, TokenStatistics(values, ids_C, job.side(chunk)), leaf_CV)
    if job.with_grad:
        gradient_CV = _gradients(loss_C, {"logits": leaf_CV}, objective.name)["logits"]
        job.note_strength(values, square_sums(gradient_CV))
        slope = map_slope(job.logit_map, logits_CV)
        logits_CV.copy_(gradient_CV if slope is None else gradient_CV * slope)


def _gradients(loss_C: Tensor, leaves: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return d loss / d leaf of each leaf that the loss depends on."""
    if not loss_C.requires_grad:
        raise PluginError(
            f"{name}.loss depends on nothing that the model computes, so it trains nothing; use s.log_prob undetached."
        )
    found = torch.autograd.grad(loss_C, list(leaves.values()), torch.ones_like(loss_C), allow_unused=True)
    return {n: g for n, g in zip(leaves, found, strict=True) if g is not None}


def _zeros_if_wanted(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return torch.zeros_like(tensor, dtype=dtype) if tensor is not None and tensor.requires_grad else None


def _scaled(grad: Tensor | None, dtype: torch.dtype | None, scale: Tensor) -> Tensor | None:
    if grad is None:
        return None
    if grad.dtype != dtype and not grad.is_cuda:
        return grad.mul_(scale).to(dtype)  # a CPU would make a wide copy to round
    # In one pass, rounded once, and dX in place: beside dW in both dtypes there is no room for a second one. The scale
    # has a dimension, or a half-precision dX would be multiplied by a scale rounded to its own dtype.
    return torch.mul(grad, scale.reshape(1), out=grad if grad.dtype == dtype else torch.empty_like(grad, dtype=dtype))
