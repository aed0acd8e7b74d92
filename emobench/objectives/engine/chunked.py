"""The chunked engine: loss and gradients without the logits of a whole batch in memory.

Legend: N tokens, C tokens of a chunk, U distinct targets of a chunk, V vocabulary, P vocabulary with the padding that
products take (on a GPU, else V), D hidden width.

For each chunk the engine
1. computes the logits,
2. reduces them to the statistics that the objective needs,
3. computes d loss / d statistic on these small vectors (by the objective's `slopes`, or by autograd),
4. overwrites the logits with d loss / d logits,
5. adds the chunk's part to dX and dW.
The backward pass puts dX in the order of the inputs, and scales dW if the loss is multiplied by anything but 1.

Precision: products use the dtype of the inputs. Statistics and losses are float32 (float64 for float64 inputs), and so
is the sum dW, except for a bfloat16 head on a GPU with few chunks. A denominator divides the hidden states that dW is
summed from, C x D numbers, and not the V x D numbers of dW. In float16 most of them would underflow to 0: there, dW is
divided in the backward pass, together with a GradScaler's factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from emobench.core.errors import PluginError
from emobench.models.device import with_float64
from emobench.objectives.base import LogitsObjective, StatisticsObjective
from emobench.objectives.cost import GroundCost
from emobench.objectives.engine.coefficients import coefficients
from emobench.objectives.engine.job import EngineCall
from emobench.objectives.engine.products import (
    accumulator_dtype,
    add_product_wide,
    has_triton,
    padded,
    padded_head,
    row_buffer,
    whole_rows,
)
from emobench.objectives.engine.targets import Chunk, Targets
from emobench.objectives.engine.torch_rows import CostRows, TorchRows, map_slope, square_sums
from emobench.objectives.statistics import TokenStatistics

MOST_ROUNDINGS = 6
"""How often dW of a bfloat16 head on a GPU may be rounded while it is summed: once a chunk. Its errors are then at
most twice those of a float32 sum that is rounded at the end, which would take three times the memory."""


class ChunkedLoss(torch.autograd.Function):
    """`ChunkedLoss.apply(hidden_ND, weight_VD, bias_V, job)` is the total loss; `forward` computes its gradients."""

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: EngineCall) -> Tensor:  # type: ignore[override]
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
    """The sums of dX, dW and db over chunks. None for an input that needs no gradient."""

    def __init__(
        self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, hidden_MD: Tensor, job: EngineCall
    ) -> None:
        accumulator = accumulator_dtype(job.dtype)
        self._dtype = hidden_ND.dtype
        self._head_dtype = weight_VD.dtype
        self.hidden_MD = hidden_MD if hidden_ND.requires_grad else None
        """The hidden states of the target tokens. Chunk by chunk, dX takes their place."""
        self._targets = job.targets
        self.weight: Tensor | None = None
        if weight_VD.requires_grad:
            rows = max(len(weight_VD), padded(job.vocabulary, job.rows.head_multiple))
            # float16 could overflow.
            few = len(job.targets.chunks) <= MOST_ROUNDINGS
            rounded = weight_VD.is_cuda and weight_VD.dtype == job.dtype == torch.bfloat16 and few
            self.weight = weight_VD.new_empty(rows, weight_VD.shape[1], dtype=job.dtype if rounded else accumulator)
        self._rows = len(weight_VD)
        self.bias: Tensor | None = None
        if bias_V is not None and bias_V.requires_grad:
            self.bias = torch.zeros_like(bias_V, dtype=accumulator)
            self._bias_dtype = bias_V.dtype
        self._vocabulary = job.vocabulary
        self._first = True
        self._scale = job.inverse_denominator()
        self._scale_of_hidden = None if job.dtype == torch.float16 else self._scale

    def add(self, dlogits_CP: Tensor, hidden_CD: Tensor, weight_PD: Tensor) -> None:
        """Add the part of one chunk, and overwrite its hidden states with dX.

        `dlogits_CP` has the dtype of the products or a wider one.
        """
        low_CP = dlogits_CP.to(weight_PD.dtype)
        if self.bias is not None:
            self.bias[: self._vocabulary] += dlogits_CP[:, : self._vocabulary].sum(dim=0, dtype=self.bias.dtype)
        if self.weight is not None:
            if self._scale_of_hidden is not None:
                _scaled(hidden_CD, hidden_CD.dtype, self._scale_of_hidden)
            # The first product overwrites dW. Filling dW with zeros first would cost a pass over memory.
            part_CP = low_CP if low_CP.is_cuda else dlogits_CP
            add_product_wide(self.weight[: len(weight_PD)], part_CP, hidden_CD, first=self._first)
            if self._first:
                self.weight[len(weight_PD) :] = 0
        if self.hidden_MD is not None:
            torch.mm(low_CP, weight_PD, out=hidden_CD)
        self._first = False

    def scaled(self, scale: Tensor) -> list[Tensor | None]:
        """Return dX, dW and db times `scale`, each in the dtype of its input. Can be called once."""
        whole = scale if self._scale is None else scale * self._scale
        hidden_MD, self.hidden_MD = self.hidden_MD, None
        hidden_ND = None if hidden_MD is None else _unsorted(hidden_MD, self._targets, self._dtype, whole)
        del hidden_MD  # before dW is rounded into new memory
        weight_VD = None
        if self.weight is not None:
            left = whole if self._scale_of_hidden is None else scale
            weight_VD = _scaled(self.weight[: self._rows], self._head_dtype, left)
        return [hidden_ND, weight_VD, None if self.bias is None else _scaled(self.bias, self._bias_dtype, whole)]


def run_chunks(
    hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: EngineCall
) -> tuple[Tensor, Gradients | None]:
    """Return the total loss, and its gradients if the job needs them. Losses and parts are added to the job."""
    rows, targets, multiple = job.rows, job.targets, job.rows.row_multiple
    hidden_MD = hidden_ND.detach()[targets.order_M].to(job.dtype)
    grads = Gradients(hidden_ND, weight_VD, bias_V, hidden_MD, job) if job.with_grad else None
    weight_PD = padded_head(weight_VD.detach(), job.vocabulary, rows.head_multiple, job.dtype)
    bias_P = None if bias_V is None else padded_head(bias_V.detach(), job.vocabulary, rows.head_multiple, job.dtype)
    # One buffer for all chunks. On a CPU, new memory for each chunk would take about 5 % of the time.
    buffer_CV = row_buffer(weight_PD, targets.most_tokens, job.vocabulary, rows.logits_dtype(job.dtype), multiple)
    job.follow(weight_PD[: job.vocabulary])
    cost_UV = cost_buffer(job.cost, targets, rows, job.dtype)
    for chunk in targets.chunks:
        hidden_CD = hidden_MD[chunk.start : chunk.stop]
        logits_CV = buffer_CV[: len(hidden_CD)]
        rows.make_logits(hidden_CD, weight_PD, bias_P, job.logit_map, logits_CV)
        _differentiate_chunk(job, chunk, logits_CV, cost_UV)
        if grads is not None:
            grads.add(whole_rows(logits_CV)[:, : len(weight_PD)], hidden_CD, weight_PD)
    job.note_together()
    job.loss_sum = with_float64(job.weighted(torch.cat(job.losses))).sum(dtype=torch.float64)
    # A copy, because autograd makes the result require gradients.
    total = job.divided(job.loss_sum).to(accumulator_dtype(job.dtype), copy=True)
    return total.to(hidden_MD.device), grads


def cost_buffer(cost: GroundCost | None, targets: Targets, rows: TorchRows, dtype: torch.dtype) -> Tensor | None:
    """Return memory for the cost rows that a chunk computes, for logits of a dtype. None without costs."""
    if cost is None:
        return None
    cost_dtype = cost.row_dtype(rows.cost_dtype(dtype))
    return row_buffer(cost.rows_VE, targets.most_distinct, len(cost), cost_dtype, rows.row_multiple)


def make_costs(cost: GroundCost | None, chunk: Chunk, buffer_UV: Tensor | None, rows: TorchRows) -> CostRows | None:
    """Write the chunk's new cost rows to the buffer. Return them together with the kept rows. None without costs."""
    if cost is None or buffer_UV is None:
        return None
    fresh_UV = cost.costs(chunk.distinct_U, out=buffer_UV[: len(chunk.distinct_U)])
    return CostRows(fresh_UV, cost.kept_rows(buffer_UV.dtype, rows.row_multiple), chunk.index_C)


def _differentiate_chunk(job: EngineCall, chunk: Chunk, logits_CV: Tensor, cost_UV: Tensor | None) -> None:
    """Add a chunk's losses to the job. If gradients are needed, overwrite its logits with d loss / d raw output."""
    ids_C = job.targets.ids_M[chunk.start : chunk.stop]
    objective = job.objective
    if isinstance(objective, LogitsObjective):
        _differentiate_logits(job, objective, chunk, logits_CV, ids_C)
        return
    costs = make_costs(job.cost, chunk, cost_UV, job.rows)
    values = job.rows.reduce(logits_CV, ids_C, costs, job.needs, job.logit_map)
    job.statistics.append(values)
    if not job.with_grad:
        return
    slopes = _slopes(job, objective, values, ids_C, job.side(chunk))
    slopes = {name: job.weighted(slope_C, chunk) for name, slope_C in slopes.items()}
    numbers = coefficients(values, slopes, job.vocabulary)
    squares_C = job.rows.differentiate(logits_CV, ids_C, costs, values["log_partition"], numbers, job.logit_map)
    job.strengths.append(squares_C)


def _slopes(
    job: EngineCall,
    objective: StatisticsObjective,
    values: dict[str, Tensor],
    ids_C: Tensor,
    side: Mapping[str, Tensor],
) -> Mapping[str, Tensor]:
    """Return d loss / d statistic of each token."""
    s = TokenStatistics({name: values[name] for name in objective.statistic_names}, ids_C, side)
    closed_form = objective.slopes(s)
    if closed_form is not None:
        job.check_slopes(closed_form, s)
        return closed_form
    leaves = {name: value.detach().requires_grad_() for name, value in s.values.items()}
    with torch.enable_grad():
        loss_C = objective.loss(TokenStatistics(leaves, ids_C, side))
    job.check("loss", loss_C, len(s))
    job.losses.append(loss_C.detach())
    return _gradients(loss_C, leaves, objective.name)


def _differentiate_logits(
    job: EngineCall, objective: LogitsObjective, chunk: Chunk, logits_CV: Tensor, ids_C: Tensor
) -> None:
    values = job.rows.reduce(logits_CV, ids_C, None, job.needs, job.logit_map)
    leaf_CV = logits_CV.detach().requires_grad_(job.with_grad)
    with torch.set_grad_enabled(job.with_grad):
        loss_C = objective.loss(leaf_CV, ids_C, job.side(chunk))
    job.note(loss_C, TokenStatistics(values, ids_C, job.side(chunk)), leaf_CV)
    if job.with_grad:
        gradient_CV = _gradients(loss_C, {"logits": leaf_CV}, objective.name)["logits"]
        job.note_strength(values, square_sums(gradient_CV))
        slope = map_slope(job.logit_map, logits_CV)
        gradient_CV = gradient_CV if slope is None else gradient_CV * slope
        logits_CV.copy_(job.weighted(gradient_CV.T, chunk).T)


def _gradients(loss_C: Tensor, leaves: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Return d loss / d leaf for each leaf that the loss depends on."""
    if not loss_C.requires_grad:
        raise PluginError(
            f"{name}.loss depends on nothing that the model computes, so it trains nothing; use s.log_prob undetached."
        )
    gradients = torch.autograd.grad(loss_C, list(leaves.values()), torch.ones_like(loss_C), allow_unused=True)
    return {n: g for n, g in zip(leaves, gradients, strict=True) if g is not None}


def _unsorted(hidden_MD: Tensor, targets: Targets, dtype: torch.dtype, scale: Tensor) -> Tensor:
    """Return dX times `scale` in the order of the inputs, (N, D); 0 at other tokens. `hidden_MD` is used up."""
    every = len(targets) == targets.tokens
    hidden_ND = (hidden_MD.new_empty if every else hidden_MD.new_zeros)(targets.tokens, hidden_MD.shape[1], dtype=dtype)
    if _by_kernel(hidden_MD):
        from emobench.objectives.engine.triton_rows import place_scaled

        place_scaled(hidden_MD, targets.order_M, scale, hidden_ND)
        return hidden_ND
    return hidden_ND.index_copy_(0, targets.order_M, _scaled(hidden_MD, dtype, scale))


def _scaled(grad: Tensor, dtype: torch.dtype, scale: Tensor) -> Tensor:
    """Return a gradient times a number on its device, in another dtype; of the same dtype, in place."""
    if grad.device.type == "cpu" and scale.detach().numpy() == 1:  # a GPU would be waited for
        return grad.to(dtype)
    if not grad.is_cuda and grad.dtype.itemsize > dtype.itemsize:
        return grad.mul_(scale).to(dtype)  # torch.mul would first make a wide copy
    if _by_kernel(grad):
        from emobench.objectives.engine.triton_rows import scaled

        return scaled(grad, scale, dtype)
    # One pass, rounded once, in place where the dtype stays. The scale gets a dimension: torch would round a scalar
    # tensor to a half-precision dtype.
    return torch.mul(grad, scale.reshape(1), out=grad if grad.dtype == dtype else torch.empty_like(grad, dtype=dtype))


def _by_kernel(grad: Tensor) -> bool:
    return grad.is_cuda and grad.dtype != torch.float64 and grad.is_contiguous() and has_triton()
