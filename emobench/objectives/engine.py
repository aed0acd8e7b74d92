"""The linear engine's entry points: hidden states and head -> loss with gradients, or statistics without.

Legend: N tokens, M target tokens, U distinct targets, V vocabulary, D hidden width.

Peak memory beyond dX and dW is bounded by `chunk_bytes`, whatever N is; `chunked.py` says how.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from emobench.errors import PluginError, UnknownNameError, UserError
from emobench.models.head import Head, LogitMap
from emobench.objectives.base import LogitsObjective, Objective, StatisticsObjective
from emobench.objectives.chunked import ChunkedLoss, cost_rows, reduce_chunk
from emobench.objectives.cost import CostEmbedding
from emobench.objectives.job import Job, LossResult
from emobench.objectives.logits import accumulator_dtype, chunk_buffer, compute_dtype, make_logits
from emobench.objectives.statistics import STATISTICS, TokenStatistics, statistics_from_logits
from emobench.objectives.targets import Targets, prepare_targets

CHUNK_BYTES = {"cpu": 128 << 20, "cuda": 1 << 30}
"""Default bytes of vocabulary-sized float32 rows (logits and cost rows) that a chunk may hold."""


def objective_loss(
    objective: Objective,
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    labels_N: Tensor | Targets,
    *,
    logit_map: LogitMap | None = None,
    side: Mapping[str, Tensor] | None = None,
    impl: str = "chunked",
    chunk_bytes: int | None = None,
) -> LossResult:
    """Return the summed loss of the target tokens, with gradients for hidden states, head weight and bias.

    `labels_N` are the targets themselves (already shifted), or what `prepare_for` made of them. `impl` is "chunked",
    or "reference": plain autograd on whole logits. The chunked loss goes backward once.
    """
    if hidden_ND.dim() != 2 or hidden_ND.shape[1] != weight_VD.shape[1]:
        raise PluginError(
            f"hidden_ND must be (tokens, {weight_VD.shape[1]}), got {tuple(hidden_ND.shape)}. "
            "Flatten batch and time first: hidden.flatten(0, 1)."
        )
    if not isinstance(objective, (StatisticsObjective, LogitsObjective)):
        raise PluginError(f"{objective.name} is a {type(objective).__mro__[1].__name__}; it runs outside the engine.")
    if impl not in ("chunked", "reference"):
        raise UserError(f"impl is '{impl}'; expected 'chunked' or 'reference'.")
    targets = labels_N
    if isinstance(targets, Tensor):
        targets = prepare_for(objective, targets, vocabulary=len(weight_VD), chunk_bytes=chunk_bytes)
    if targets.tokens != len(hidden_ND):
        raise PluginError(
            f"There are {targets.tokens} labels for {len(hidden_ND)} hidden states; expected one for each."
        )
    dtype = compute_dtype(hidden_ND, weight_VD)
    job = Job(objective, targets, logit_map or LogitMap(), side or {}, dtype, len(weight_VD))
    # Not ctx.needs_input_grad, which is true under no_grad as well.
    inputs = [t for t in (hidden_ND, weight_VD, bias_V) if t is not None]
    job.with_grad = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        run = ChunkedLoss.apply if impl == "chunked" else _reference_total
        return job.result(run(hidden_ND, weight_VD, bias_V, job))


def prepare_for(objective: Objective, labels: Tensor, *, vocabulary: int, chunk_bytes: int | None = None) -> Targets:
    """Prepare labels of any shape for an objective: to be called before the model runs."""
    rows = _chunk_rows(labels.device, vocabulary, chunk_bytes)
    return prepare_targets(labels, chunk_rows=rows, with_cost="expected_cost" in objective.needs)


@torch.no_grad()
def token_statistics(
    hidden_ND: Tensor,
    head: Head,
    targets_N: Tensor,
    needs: frozenset[str] | set[str] = frozenset({"log_prob"}),
    *,
    chunk: int | None = None,
    cost: CostEmbedding | None = None,
) -> TokenStatistics:
    """Return statistics of each token, (N,) in the order given, 0 where the target is -100; no gradients.

    `chunk` is the number of vocabulary-sized rows that are held at once. `expected_cost` needs `cost`.
    Raises UnknownNameError for a name that is no statistic.
    """
    weight_VD, bias_V = head.linear.weight, head.linear.bias
    names = frozenset(needs) | {"log_prob"}
    for name in sorted(names - set(STATISTICS)):
        raise UnknownNameError("statistic", name, STATISTICS)
    if "expected_cost" not in names:
        cost = None
    elif cost is None:
        raise UserError("`expected_cost` needs a cost embedding; give cost=CostEmbedding(weight).")
    rows = chunk or _chunk_rows(hidden_ND.device, len(weight_VD), None)
    targets = prepare_targets(targets_N, chunk_rows=rows, with_cost=cost is not None)
    dtype = compute_dtype(hidden_ND, weight_VD)
    weight_VD = weight_VD.to(dtype)
    bias_V = None if bias_V is None else bias_V.to(dtype)
    found = {name: hidden_ND.new_zeros(targets.tokens, dtype=accumulator_dtype(dtype)) for name in names}
    buffer_CV = chunk_buffer(targets, weight_VD, with_cost=cost is not None)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        for part in targets.chunks:
            positions_C = targets.order_M[part.start : part.stop]
            logits_CV = make_logits(hidden_ND[positions_C].to(dtype), weight_VD, bias_V, head.logit_map, out=buffer_CV)
            cost_UV = None if cost is None else cost.costs(part.distinct_U, out=cost_rows(buffer_CV, part))
            values = reduce_chunk(logits_CV, targets.ids_M[part.start : part.stop], part, cost_UV, names)
            for name in names:
                found[name][positions_C] = values[name]
    return TokenStatistics(found, targets_N.reshape(-1))


def _chunk_rows(device: torch.device, vocabulary: int, chunk_bytes: int | None) -> int:
    budget = chunk_bytes or CHUNK_BYTES.get(device.type, CHUNK_BYTES["cpu"])
    return max(1, budget // (4 * vocabulary))


def _reference_total(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: Job) -> Tensor:
    """Return the summed loss by plain autograd on whole logits: slow, large, and easy to read."""
    objective, ids_M, side_M = job.objective, job.targets.ids_M, job.side_M
    wide = accumulator_dtype(job.dtype)
    # Inputs are rounded to the dtype of the call, their products are not.
    hidden_MD = hidden_ND[job.targets.order_M].to(job.dtype).to(wide)
    bias_V = None if bias_V is None else bias_V.to(job.dtype).to(wide)
    logits_MV = job.logit_map.apply(nn.functional.linear(hidden_MD, weight_VD.to(job.dtype).to(wide), bias_V))
    cost_MV = None
    if job.cost is not None:
        distinct_U, inverse_M = ids_M.unique(return_inverse=True)
        cost_MV = job.cost.costs(distinct_U)[inverse_M]
    names = objective.statistic_names if isinstance(objective, StatisticsObjective) else frozenset({"log_prob"})
    s = TokenStatistics(statistics_from_logits(logits_MV, ids_M, names, cost_MV), ids_M, side_M)
    loss_M = (
        objective.loss(s) if isinstance(objective, StatisticsObjective) else objective.loss(logits_MV, ids_M, side_M)
    )
    job.note(loss_M, s)
    return loss_M.sum()
