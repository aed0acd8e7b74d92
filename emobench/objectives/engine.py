"""The chunked linear engine: hidden states and head -> loss and gradients, without the logits of a batch.

Legend: N tokens, M target tokens, C tokens of a chunk, R rows of a block, V vocabulary, D hidden width.

For each chunk the engine makes logits, reduces them to the statistics that the objective needs, calls `loss` on those
small vectors under autograd (one slope per token and statistic), overwrites the logits by their gradient, and adds to
dX and dW. Backward only scales. Peak memory beyond dX and dW is bounded by `chunk_bytes`, whatever N is.

Precision: logits are made in the inputs' dtype; statistics, losses and the dW accumulator are float32 (float64 for
float64 inputs). Gradients are never divided by the token count here: in float16 that would flush most of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from emobench.errors import PluginError, UserError
from emobench.models.head import Head, LogitMap
from emobench.objectives.base import LogitsObjective, Objective, StatisticsObjective
from emobench.objectives.cost import CostEmbedding
from emobench.objectives.rows import differentiate_rows, reduce_rows
from emobench.objectives.statistics import TokenStatistics, statistics_from_logits
from emobench.objectives.targets import Chunk, Targets, prepare_targets

CHUNK_BYTES = {"cpu": 128 << 20, "cuda": 1 << 30}
"""Default bytes of vocabulary-sized float32 rows (logits and cost rows) that a chunk may hold."""
BLOCK_BYTES = {"cpu": 2 << 20, "cuda": 64 << 20}
"""Bytes of the row blocks of the elementwise passes: on a CPU they stay in its cache."""


@dataclass
class LossResult:
    """What one call of the engine found."""

    total: Tensor
    """Sum of the losses of the target tokens: a scalar with gradients, not yet divided."""
    losses_N: Tensor
    """Loss of each token, detached, 0 where the label is -100."""
    log_prob_N: Tensor
    """log q_t of each token in nats, detached, 0 where the label is -100."""
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Sums over target tokens of what the objective logs, `mle` among them."""
    count: int = 0
    """Target tokens."""


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
    or "reference": plain autograd on whole logits.
    """
    if hidden_ND.dim() != 2 or hidden_ND.shape[1] != weight_VD.shape[1]:
        raise PluginError(
            f"hidden_ND must be (tokens, {weight_VD.shape[1]}), got {tuple(hidden_ND.shape)}. "
            "Flatten batch and time first: hidden.flatten(0, 1)."
        )
    if not isinstance(objective, (StatisticsObjective, LogitsObjective)):
        raise PluginError(f"{objective.name} is a {type(objective).__mro__[1].__name__}; it runs outside the engine.")
    targets = (
        labels_N
        if isinstance(labels_N, Targets)
        else prepare_for(objective, labels_N, vocabulary=len(weight_VD), chunk_bytes=chunk_bytes)
    )
    job = _Job(objective, targets, logit_map or LogitMap(), _sorted_side(side, targets), _compute_dtype(hidden_ND, weight_VD))
    if impl == "reference":
        return job.run_reference(hidden_ND, weight_VD, bias_V)
    if impl != "chunked":
        raise UserError(f"impl is '{impl}'; expected 'chunked' or 'reference'.")
    job.with_grad = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (hidden_ND, weight_VD, bias_V)
    )
    with torch.autocast(hidden_ND.device.type, enabled=False):
        total = _ChunkedLoss.apply(hidden_ND, weight_VD, bias_V, job)
    return job.result(total)


def prepare_for(objective: Objective, labels: Tensor, *, vocabulary: int, chunk_bytes: int | None = None) -> Targets:
    """Prepare labels for an objective: to be called before the model runs."""
    budget = chunk_bytes or CHUNK_BYTES.get(labels.device.type, CHUNK_BYTES["cpu"])
    rows = max(1, budget // (4 * vocabulary))
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

    `chunk` is the number of tokens whose logits are held at once.
    """
    weight_VD = head.linear.weight
    rows = chunk or max(1, CHUNK_BYTES["cpu"] // (4 * len(weight_VD)))
    targets = prepare_targets(targets_N, chunk_rows=rows, with_cost=cost is not None)
    names = frozenset(needs) | {"log_prob"}
    accumulate = _accumulator(hidden_ND.dtype)
    out = {name: torch.zeros(targets.tokens, dtype=accumulate, device=hidden_ND.device) for name in names}
    for part in targets.chunks:
        positions = targets.order_M[part.start : part.stop]
        logits_CV = _logits(hidden_ND[positions], weight_VD, head.linear.bias, head.logit_map)
        cost_UV = None if cost is None else cost.costs(part.distinct_U)
        values = _reduce_chunk(logits_CV, targets.ids_M[part.start : part.stop], part, cost_UV, names)
        for name in names:
            out[name][positions] = values[name]
    return TokenStatistics(out, targets_N.reshape(-1))


class _Job:
    """One call of the engine: its inputs beside the tensors, and what it found."""

    def __init__(
        self,
        objective: StatisticsObjective | LogitsObjective,
        targets: Targets,
        logit_map: LogitMap,
        side_M: dict[str, Tensor],
        dtype: torch.dtype,
    ) -> None:
        self.objective = objective
        self.targets = targets
        self.logit_map = logit_map
        self.side_M = side_M
        self.dtype = dtype
        self.with_grad = False
        self.losses: list[Tensor] = []
        self.log_probs: list[Tensor] = []
        self.parts: dict[str, Tensor] = {}

    @property
    def cost(self) -> CostEmbedding | None:
        if "expected_cost" not in self.objective.needs:
            return None
        cost = getattr(self.objective, "cost_embedding", None)
        if cost is None:
            raise PluginError(f"{self.objective.name} needs `expected_cost` but has no cost embedding; call setup() first.")
        return cost

    def side(self, chunk: Chunk) -> dict[str, Tensor]:
        return {name: value[chunk.start : chunk.stop] for name, value in self.side_M.items()}

    def chunk_slopes(self, values: dict[str, Tensor], ids_C: Tensor, chunk: Chunk) -> dict[str, Tensor]:
        """Return d loss / d statistic of a chunk, after noting its losses and parts."""
        objective = self.objective
        assert isinstance(objective, StatisticsObjective)
        names = objective.statistic_names
        leaves = {name: values[name].detach().requires_grad_(self.with_grad) for name in names}
        with torch.set_grad_enabled(self.with_grad):
            loss_C = objective.loss(TokenStatistics(leaves, ids_C, self.side(chunk)))
        self.note(loss_C, values["log_prob"], chunk)
        self.note_parts(TokenStatistics({n: v.detach() for n, v in leaves.items()}, ids_C, self.side(chunk)))
        if not self.with_grad:
            return {}
        return _slopes(loss_C, leaves, objective.name)

    def note(self, loss_C: Tensor, log_prob_C: Tensor, chunk: Chunk) -> None:
        if not isinstance(loss_C, Tensor) or loss_C.shape != (chunk.stop - chunk.start,):
            found = tuple(loss_C.shape) if isinstance(loss_C, Tensor) else type(loss_C).__name__
            raise PluginError(
                f"{self.objective.name}.loss returned {found}; expected one loss per token, "
                f"({chunk.stop - chunk.start},), and no mean: the trainer divides."
            )
        self.losses.append(loss_C.detach())
        self.log_probs.append(log_prob_C.detach())

    def note_parts(self, s: TokenStatistics) -> None:
        found = {"mle": -s.log_prob}
        if isinstance(self.objective, StatisticsObjective):
            found.update(self.objective.parts(s))
        for name, value in found.items():
            # Summed in float64: thousands of float32 terms would show in the sixth digit.
            self.parts[name] = self.parts.get(name, 0) + value.detach().double().sum()

    def result(self, total: Tensor) -> LossResult:
        accumulate = total.dtype
        losses_N = torch.zeros(self.targets.tokens, dtype=accumulate, device=total.device)
        log_prob_N = torch.zeros_like(losses_N)
        if self.losses:
            losses_N[self.targets.order_M] = torch.cat(self.losses).to(accumulate)
            log_prob_N[self.targets.order_M] = torch.cat(self.log_probs).to(accumulate)
        return LossResult(total, losses_N, log_prob_N, self.parts, len(self.targets))

    def run_reference(self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None) -> LossResult:
        """The whole logits, plain torch and autograd; sorted like the chunks, as one chunk."""
        targets = self.targets
        ids_M = targets.ids_M
        distinct_U, inverse_M = torch.unique_consecutive(ids_M, return_inverse=True)
        whole = Chunk(0, len(targets), distinct_U, inverse_M)
        hidden_MD = hidden_ND[targets.order_M]
        raw_MV = nn.functional.linear(hidden_MD, weight_VD, bias_V)
        logits_MV = self.logit_map.apply(raw_MV.to(_accumulator(self.dtype)))
        objective = self.objective
        if isinstance(objective, StatisticsObjective):
            cost_MV = None if self.cost is None else self.cost.costs(distinct_U)[inverse_M]
            values = statistics_from_logits(logits_MV, ids_M, objective.statistic_names, cost_MV)
            s = TokenStatistics(values, ids_M, self.side(whole))
            loss_M = objective.loss(s)
        else:
            loss_M = objective.loss(logits_MV, ids_M, self.side(whole))
            s = TokenStatistics(statistics_from_logits(logits_MV, ids_M, frozenset(), None), ids_M)
        self.note(loss_M, s.log_prob, whole)
        self.note_parts(s.detach())
        return self.result(loss_M.sum())


class _ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, job: _Job) -> Tensor:  # type: ignore[override]
        accumulate = _accumulator(job.dtype)
        wanted = [job.with_grad and t is not None and t.requires_grad for t in (hidden_ND, weight_VD, bias_V)]
        grads = _Gradients(hidden_ND, weight_VD, bias_V, wanted, accumulate)
        weight_VD = weight_VD.to(job.dtype)
        bias_V = None if bias_V is None else bias_V.to(job.dtype)
        for chunk in job.targets.chunks:
            positions_C = job.targets.order_M[chunk.start : chunk.stop]
            hidden_CD = hidden_ND[positions_C].to(job.dtype)
            logits_CV = _logits(hidden_CD, weight_VD, bias_V, job.logit_map)
            _differentiate_chunk(job, chunk, logits_CV)
            if job.with_grad:
                grads.add(logits_CV, hidden_CD, weight_VD, positions_C)
        ctx.grads = grads.taken() if job.with_grad else None
        total = torch.cat(job.losses).sum(dtype=torch.float64) if job.losses else hidden_ND.new_zeros(())
        return total.to(accumulate)

    @staticmethod
    def backward(ctx: Any, grad_total: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if ctx.grads is None:
            raise RuntimeError(
                "The chunked engine gives its gradients away once, to hold one copy of the head's gradient; "
                "call objective_loss(..., impl='reference') to go backward twice through one forward."
            )
        grads, ctx.grads = ctx.grads, None
        return (*(_scaled(grad, dtype, grad_total) for grad, dtype in grads), None)


class _Gradients:
    """The sums of dX, dW and db over chunks; None where nobody wants them."""

    def __init__(
        self, hidden_ND: Tensor, weight_VD: Tensor, bias_V: Tensor | None, wanted: list[bool], accumulate: torch.dtype
    ) -> None:
        self.dtypes = [None if t is None else t.dtype for t in (hidden_ND, weight_VD, bias_V)]
        self.hidden = torch.zeros_like(hidden_ND) if wanted[0] else None
        self.weight = torch.zeros_like(weight_VD, dtype=accumulate) if wanted[1] else None
        self.bias = torch.zeros_like(bias_V, dtype=accumulate) if wanted[2] and bias_V is not None else None

    def add(self, dlogits_CV: Tensor, hidden_CD: Tensor, weight_VD: Tensor, positions_C: Tensor) -> None:
        if self.bias is not None:
            self.bias += dlogits_CV.sum(dim=0)
        if self.hidden is not None:
            self.hidden[positions_C] = (dlogits_CV.to(weight_VD.dtype) @ weight_VD).to(self.hidden.dtype)
        if self.weight is not None:
            # In the accumulator's dtype on both sides: a half-precision product would round each chunk's sum.
            self.weight.addmm_(dlogits_CV.T, hidden_CD.to(dlogits_CV.dtype))

    def taken(self) -> list[tuple[Tensor | None, torch.dtype | None]]:
        return list(zip((self.hidden, self.weight, self.bias), self.dtypes, strict=True))


def _scaled(grad: Tensor | None, dtype: torch.dtype | None, scale: Tensor) -> Tensor | None:
    if grad is None:
        return None
    if grad.dtype in (torch.float32, torch.float64):
        return grad.mul_(scale).to(dtype)
    return (grad.to(scale.dtype) * scale).to(dtype)


def _differentiate_chunk(job: _Job, chunk: Chunk, logits_CV: Tensor) -> None:
    """Note a chunk's losses, and overwrite its logits by d loss / d raw logits where gradients are wanted."""
    ids_C = job.targets.ids_M[chunk.start : chunk.stop]
    objective = job.objective
    if isinstance(objective, LogitsObjective):
        _differentiate_logits(job, chunk, logits_CV, ids_C)
        return
    cost = job.cost
    cost_UV = None if cost is None else cost.costs(chunk.distinct_U)
    values = _reduce_chunk(logits_CV, ids_C, chunk, cost_UV, objective.statistic_names)
    slopes = job.chunk_slopes(values, ids_C, chunk)
    if not job.with_grad:
        return
    for rows in _blocks(logits_CV):
        block_RV = logits_CV[rows]
        slope_RV = _map_slope(job.logit_map, block_RV)
        differentiate_rows(
            block_RV,
            ids_C[rows],
            None if cost_UV is None else cost_UV[chunk.inverse_C[rows]],
            {name: value[rows] for name, value in values.items()},
            {name: value[rows] for name, value in slopes.items()},
        )
        if slope_RV is not None:
            block_RV.mul_(slope_RV)


def _differentiate_logits(job: _Job, chunk: Chunk, logits_CV: Tensor, ids_C: Tensor) -> None:
    objective = job.objective
    assert isinstance(objective, LogitsObjective)
    values = _reduce_chunk(logits_CV, ids_C, chunk, None, frozenset())
    leaf_CV = logits_CV.detach().requires_grad_(job.with_grad)
    with torch.set_grad_enabled(job.with_grad):
        loss_C = objective.loss(leaf_CV, ids_C, job.side(chunk))
    job.note(loss_C, values["log_prob"], chunk)
    job.note_parts(TokenStatistics({"log_prob": values["log_prob"]}, ids_C))
    if job.with_grad:
        gradient_CV = _slopes(loss_C, {"logits": leaf_CV}, objective.name)["logits"]
        slope_CV = _map_slope(job.logit_map, logits_CV)
        logits_CV.copy_(gradient_CV if slope_CV is None else gradient_CV * slope_CV)


def _slopes(loss_C: Tensor, leaves: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    if not loss_C.requires_grad:
        raise PluginError(f"{name}.loss depends on nothing that the model computes, so it trains nothing; use s.log_prob undetached.")
    names = list(leaves)
    found = torch.autograd.grad(loss_C, [leaves[n] for n in names], torch.ones_like(loss_C), allow_unused=True)
    return {n: g for n, g in zip(names, found, strict=True) if g is not None}


def _reduce_chunk(
    logits_CV: Tensor, ids_C: Tensor, chunk: Chunk, cost_UV: Tensor | None, needs: frozenset[str]
) -> dict[str, Tensor]:
    blocks = [
        reduce_rows(logits_CV[rows], ids_C[rows], None if cost_UV is None else cost_UV[chunk.inverse_C[rows]], needs)
        for rows in _blocks(logits_CV)
    ]
    return {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}


def _blocks(logits_CV: Tensor) -> list[slice]:
    budget = BLOCK_BYTES.get(logits_CV.device.type, BLOCK_BYTES["cpu"])
    rows = max(1, budget // (logits_CV.element_size() * logits_CV.shape[1]))
    return [slice(i, i + rows) for i in range(0, len(logits_CV), rows)]


def _logits(hidden_CD: Tensor, weight_VD: Tensor, bias_V: Tensor | None, logit_map: LogitMap) -> Tensor:
    raw_CV = nn.functional.linear(hidden_CD, weight_VD, bias_V)
    logits_CV = raw_CV.to(_accumulator(raw_CV.dtype))
    if logit_map.scale != 1.0:
        logits_CV.mul_(logit_map.scale)
    if logit_map.cap is not None:
        logits_CV.div_(logit_map.cap).tanh_().mul_(logit_map.cap)
    return logits_CV


def _map_slope(logit_map: LogitMap, logits_RV: Tensor) -> Tensor | float | None:
    """Return d logit / d raw logit, read off the logits themselves; None where it is 1."""
    if logit_map.cap is None:
        return None if logit_map.scale == 1.0 else logit_map.scale
    return (logits_RV / logit_map.cap).square_().neg_().add_(1).mul_(logit_map.scale)


def _accumulator(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _compute_dtype(hidden_ND: Tensor, weight_VD: Tensor) -> torch.dtype:
    kind = hidden_ND.device.type
    if torch.is_autocast_enabled(kind) and weight_VD.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return weight_VD.dtype


def _sorted_side(side: Mapping[str, Tensor] | None, targets: Targets) -> dict[str, Tensor]:
    found = {}
    for name, value in (side or {}).items():
        if value.shape[0] != targets.tokens:
            raise PluginError(
                f"Side data '{name}' has {value.shape[0]} rows; expected one for each of the {targets.tokens} tokens."
            )
        found[name] = value[targets.order_M]
    return found
