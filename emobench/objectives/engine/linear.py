"""Entry points of the linear engine: `objective_loss` (with gradients) and `token_statistics` (without).

Legend: N tokens, M target tokens, U distinct targets, V vocabulary, D hidden width.

`chunk_bytes` bounds the peak memory beyond dX and dW for any N; see `chunked.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from emobench.core.errors import PluginError, UnknownNameError, UserError
from emobench.models.device import with_float64
from emobench.models.head import Head, LogitMap
from emobench.objectives.base import LogitsObjective, Objective, StatisticsObjective
from emobench.objectives.cost import GroundCost
from emobench.objectives.engine.chunked import ChunkedLoss, cost_buffer, make_costs
from emobench.objectives.engine.job import EngineCall, LossResult, frozen_cost, per_token, sorted_side
from emobench.objectives.engine.products import accumulator_dtype, compute_dtype, has_triton, padded_head, row_buffer
from emobench.objectives.engine.targets import Targets, prepare_targets
from emobench.objectives.engine.torch_rows import TorchRows, logits_by_product
from emobench.objectives.statistics import GREEDY, STATISTICS, TokenStatistics, statistics_from_logits

PASSES = ("chunked", "torch", "triton")
IMPLEMENTATIONS = (*PASSES, "reference")
"""chunked: Triton or PyTorch, depending on the device. reference: plain autograd on whole logits."""
CHUNK_BYTES = {"cpu": (160 << 20, 160 << 20), "cuda": (512 << 20, 960 << 20)}
"""Default limits in bytes for the logits and cost rows of a chunk. The second one holds where the first is less than
`ENOUGH_ROWS` rows: products with fewer rows are slower on a GPU."""
ENOUGH_ROWS = 4096


def objective_loss(
    objective: Objective,
    hidden_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    labels_N: Tensor | Targets,
    *,
    logit_map: LogitMap | None = None,
    side: Mapping[str, Tensor] | None = None,
    weights_N: Tensor | None = None,
    denominator: Tensor | float | None = None,
    vocabulary: int | None = None,
    impl: str = "chunked",
    chunk_bytes: int | None = None,
) -> LossResult:
    """Return the summed loss of the target tokens, with gradients for hidden states, head weight and bias.

    A `denominator`, such as the number of target tokens of all micro-batches, divides the sum. Divided afterwards, the
    gradient of the head takes another pass over memory.

    `labels_N` are the targets (already shifted), or the result of `prepare_for`. Rows of the head from `vocabulary` on
    are padding: they have probability 0 and get no gradient. `impl` is "chunked" (Triton kernels on a GPU, PyTorch
    elsewhere), "torch", "triton" or "reference" (plain autograd on whole logits). Except with "reference", `backward`
    can run only once. `weights_N` multiplies each token's loss; only the total and the gradients have it. Raises
    PluginError or UserError if shapes, dtypes or devices do not match.
    """
    vocabulary = len(weight_VD) if vocabulary is None else vocabulary
    _check_inputs(hidden_ND, weight_VD, bias_V, vocabulary)
    if not isinstance(objective, (StatisticsObjective, LogitsObjective)):
        raise PluginError(f"{objective.name} is a {type(objective).__mro__[1].__name__}; it runs outside the engine.")
    if impl not in IMPLEMENTATIONS:
        raise UserError(f"impl is '{impl}'; expected one of {', '.join(IMPLEMENTATIONS)}.")
    dtype = compute_dtype(hidden_ND, weight_VD)
    targets = labels_N
    if isinstance(targets, Tensor):
        targets = prepare_for(
            objective, targets, vocabulary=vocabulary, dtype=dtype, impl=impl, chunk_bytes=chunk_bytes
        )
    if targets.tokens != len(hidden_ND):
        raise PluginError(
            f"There are {targets.tokens} labels for {len(hidden_ND)} hidden states; expected one for each."
        )
    rows = rows_for(_implementation(objective, impl), hidden_ND.device, dtype)
    cost = frozen_cost(objective, weight_VD, vocabulary)
    map_ = logit_map or LogitMap()
    side_M = sorted_side(objective, side or {}, targets)
    weights_M = None if weights_N is None else per_token("The weights have", weights_N, targets)
    # Not ctx.needs_input_grad, which is also true under no_grad.
    inputs = [t for t in (hidden_ND, weight_VD, bias_V) if t is not None]
    with_grad = torch.is_grad_enabled() and any(t.requires_grad for t in inputs)
    job = EngineCall(objective, targets, map_, side_M, cost, rows, dtype, vocabulary, weights_M, denominator, with_grad)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        run = _reference_total if impl == "reference" else ChunkedLoss.apply
        return job.result(run(hidden_ND, weight_VD, bias_V, job))


def prepare_for(
    objective: Objective,
    labels: Tensor,
    *,
    vocabulary: int,
    dtype: torch.dtype = torch.float32,
    impl: str = "chunked",
    chunk_bytes: int | None = None,
    device: torch.device | None = None,
) -> Targets:
    """Prepare labels of any shape for an objective. Call it before the model runs: it waits for the labels' device.

    `dtype` is the dtype of the matrix products. `device` is where they will run, if the labels are not there yet.
    Raises UserError for a label outside the vocabulary.
    """
    with_cost = "expected_cost" in objective.needs
    cost = getattr(objective, "cost_embedding", None)
    slot_V = cost.slot_V if with_cost and cost is not None and len(cost) == vocabulary else None
    device = device or labels.device
    rows = rows_for(_implementation(objective, impl), device, dtype)
    most = _chunk_rows(rows, device, dtype, vocabulary, chunk_bytes)
    if isinstance(objective, LogitsObjective):
        most = max(1, most // 4)  # its autograd holds several copies of the logits
    targets = prepare_targets(labels, chunk_rows=most, with_cost=with_cost, slot_V=slot_V)
    require_labels(targets.ids_M, vocabulary)
    return targets


def require_labels(ids_M: Tensor, vocabulary: int) -> None:
    """Raise UserError for a label outside the vocabulary."""
    if not len(ids_M):
        return
    low, high = (int(end) for end in ids_M.aminmax())
    if low < 0 or high >= vocabulary:
        bad = high if high >= vocabulary else low
        raise UserError(
            f"Label {bad} is not a token of the vocabulary, 0 to {vocabulary - 1} (-100 is not a target). Take the "
            "model's own tokenizer; if tokens were added to it, give it to emobench.attach or objective: tokenizer=..."
        )


@torch.no_grad()
def token_statistics(
    hidden_ND: Tensor,
    head: Head,
    targets_N: Tensor,
    needs: frozenset[str] | set[str] = frozenset({"log_prob"}),
    *,
    chunk: int | None = None,
    cost: GroundCost | None = None,
    impl: str = "chunked",
) -> TokenStatistics:
    """Return statistics of each token, (N,), in the order of the inputs, without gradients; 0 where the target is -100.

    `chunk` is the number of rows of logits in memory at once. `expected_cost` needs `cost`.
    Raises UnknownNameError for an unknown statistic.
    """
    names = frozenset(needs) | {"log_prob"}
    for name in sorted(names - {*STATISTICS, GREEDY}):
        raise UnknownNameError("statistic", name, {*STATISTICS, GREEDY})
    if "expected_cost" not in names:
        cost = None
    elif cost is None:
        raise UserError("`expected_cost` needs a cost embedding; give cost=CostEmbedding(weight).")
    dtype = compute_dtype(hidden_ND, head.linear.weight)
    vocabulary = head.tokens
    rows = rows_for(impl, hidden_ND.device, dtype)
    bias_V = head.linear.bias
    weight_PD = padded_head(head.linear.weight, vocabulary, rows.head_multiple, dtype)
    bias_P = None if bias_V is None else padded_head(bias_V, vocabulary, rows.head_multiple, dtype)
    plain = type(rows) is TorchRows and hidden_ND.device.type == "cpu" and dtype == torch.float32
    product = head.packed_product if plain else None
    # Reported statistics use float32 logits, even if the model is trained in half precision.
    wide = accumulator_dtype(dtype)
    limit = chunk or _chunk_rows(rows, hidden_ND.device, wide, vocabulary, None)
    targets = prepare_targets(targets_N, chunk_rows=limit, with_cost=cost is not None)
    values_N = {name: hidden_ND.new_zeros(targets.tokens, dtype=wide) for name in names}
    buffer_CV = row_buffer(weight_PD, targets.most_tokens, vocabulary, wide, rows.row_multiple)
    cost_UV = cost_buffer(cost, targets, rows, wide)
    with torch.autocast(hidden_ND.device.type, enabled=False):
        for part in targets.chunks:
            positions_C = targets.order_M[part.start : part.stop]
            logits_CV = buffer_CV[: len(positions_C)]
            hidden_CD = hidden_ND[positions_C].to(dtype)
            if product is None:
                rows.make_logits(hidden_CD, weight_PD, bias_P, head.logit_map, logits_CV)
            else:
                logits_by_product(product, hidden_CD, head.logit_map, logits_CV)
            costs = make_costs(cost, part, cost_UV, rows)
            ids_C = targets.ids_M[part.start : part.stop]
            values = {}
            if GREEDY in names:  # the map to logits keeps their order
                top_C = logits_CV[:, :vocabulary].amax(1)
                values[GREEDY] = (logits_CV.gather(1, ids_C[:, None])[:, 0] >= top_C).to(wide)
            values |= rows.reduce(logits_CV, ids_C, costs, names - {GREEDY}, head.logit_map)
            for name in names:
                values_N[name][positions_C] = values[name]
    return TokenStatistics(values_N, targets_N.reshape(-1))


def rows_for(impl: str, device: torch.device, dtype: torch.dtype) -> TorchRows:
    """Return the passes of an implementation other than "reference". Raises UserError if it is none or cannot run."""
    if impl not in PASSES:
        raise UserError(f"impl is '{impl}'; expected one of {', '.join(PASSES)}.")
    if impl == "torch" or (impl == "chunked" and not _kernels_run(device, dtype)):
        return TorchRows()
    if impl == "triton" and not _kernels_run(device, dtype, interpreted=True):
        raise UserError(
            f"impl is 'triton' for {dtype} on '{device.type}'; its kernels take float32, bfloat16 or float16 on a CUDA "
            "device, with triton installed. Take impl='torch', or set TRITON_INTERPRET=1 before the start to try them."
        )
    from emobench.objectives.engine.triton_rows import TritonRows

    return TritonRows()


def _kernels_run(device: torch.device, dtype: torch.dtype, *, interpreted: bool = False) -> bool:
    if dtype == torch.float64 or not has_triton():
        return False
    return device.type == "cuda" or (interpreted and os.environ.get("TRITON_INTERPRET") == "1")


def _implementation(objective: Objective, impl: str) -> str:
    """Return the implementation of the passes. A LogitsObjective reads final float32 logits, so it uses PyTorch."""
    return "torch" if impl == "reference" or isinstance(objective, LogitsObjective) else impl


def _chunk_rows(
    rows: TorchRows, device: torch.device, dtype: torch.dtype, vocabulary: int, chunk_bytes: int | None
) -> int:
    row_bytes = vocabulary * rows.logits_dtype(dtype).itemsize
    usual, most = CHUNK_BYTES.get(device.type, CHUNK_BYTES["cpu"])
    limit = chunk_bytes or min(max(usual, ENOUGH_ROWS * row_bytes), most)
    return max(1, limit // row_bytes)


def _check_inputs(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, vocabulary: int) -> None:
    if hidden_ND.dim() != 2 or hidden_ND.shape[1] != weight_VD.shape[-1]:
        raise PluginError(
            f"hidden_ND must be (tokens, {weight_VD.shape[-1]}), got {tuple(hidden_ND.shape)}. "
            "Flatten batch and time first: hidden.flatten(0, 1)."
        )
    if weight_VD.dim() != 2 or not 1 <= vocabulary <= len(weight_VD):
        raise PluginError(
            f"The head is {tuple(weight_VD.shape)} for a vocabulary of {vocabulary}; expected (vocabulary or more, "
            "width), such as model.get_output_embeddings().weight."
        )
    if bias_V is not None and bias_V.shape != (len(weight_VD),):
        raise PluginError(f"The head's bias is {tuple(bias_V.shape)}; expected ({len(weight_VD)},), one for each row.")


def _reference_total(hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: EngineCall) -> Tensor:
    """Return the total loss by plain autograd on whole logits. Slow and large, but easy to read."""
    objective, ids_M, side_M = job.objective, job.targets.ids_M, job.side_M
    wide, rows = accumulator_dtype(job.dtype), slice(job.vocabulary)
    # Inputs are rounded to the dtype of the call; their products are not.
    hidden_MD = hidden_ND[job.targets.order_M].to(job.dtype).to(wide)
    bias_V = None if bias_V is None else bias_V[rows].to(job.dtype).to(wide)
    weight_VD = weight_VD[rows].to(job.dtype)
    job.follow(weight_VD)
    logits_MV = job.logit_map.apply(nn.functional.linear(hidden_MD, weight_VD.to(wide), bias_V))
    cost_MV = None
    if job.cost is not None:
        distinct_U, inverse_M = ids_M.unique(return_inverse=True)
        cost_MV = job.cost.costs(distinct_U)[inverse_M]
    values = statistics_from_logits(logits_MV, ids_M, objective.statistic_names, cost_MV)
    s = TokenStatistics(values, ids_M, side_M)
    if isinstance(objective, StatisticsObjective):
        loss_M = objective.loss(s)
    else:
        loss_M = objective.loss(logits_MV, ids_M, side_M)
    job.note(loss_M, s, logits_MV)
    total = job.weighted(loss_M).sum()
    job.loss_sum = with_float64(total.detach()).double()
    return job.divided(total)
