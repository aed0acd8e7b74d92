"""Distances between two next-token distributions at every position of texts: Q, the model's, and P, a target's.

P is a surrogate of the data's distribution (EMO paper, A.4.1 and Figure 2), or the known one of the oracle language.
Both are read chunk by chunk: of a batch only hidden states are held, of the vocabulary only some positions' rows.

Legend: X texts, B texts of a batch, T positions, N positions that count, C of a chunk, D hidden width, V vocabulary,
S distances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from emobench.core.errors import MetricError
from emobench.metrics.batching import Progress, check_context, pad, read_batches, reading
from emobench.metrics.distances import COLUMNS, PRIMARY, distance_score
from emobench.models.head import Head, final_hidden, probe_head, token_count
from emobench.objectives.engine.products import accumulator_dtype, multiply_wide
from emobench.tasks.scores import SECONDARY, Score

CHUNK_BYTES = 24 << 20
"""Of one (C, V) table in float64; about seven are alive at once."""
TOKEN_BUDGET = 1024
"""Padded positions of a batch: what bounds the memory of the models' own layers."""

LogProbs = Callable[[slice], Tensor]
"""Returns log probabilities of a chunk of the N positions that count, (C, V), in float64."""
Distribution = Callable[[Tensor, Tensor], LogProbs]
"""Reads a batch, ids_BT and which positions count, inside_BT; the N of them are in the order of inside_BT."""


def distances(log_p_NV: Tensor, log_q_NV: Tensor) -> Tensor:
    """Return `COLUMNS` for each position, (N, S), in the dtype of the log probabilities.

    forward_cross_entropy  -sum_v P log Q, nats       reverse_cross_entropy  -sum_v Q log P, nats
    forward_kl             sum_v P log(P / Q), nats   reverse_kl             sum_v Q log(Q / P), nats
    total_variation        0.5 sum_v |P - Q|          entropy                -sum_v Q log Q, nats
    target_entropy         -sum_v P log P, nats
    The official code (`test_utils.py`, `distribution_measures`) has the two cross-entropies, reverse_kl and
    total_variation.
    """
    p_NV, q_NV = log_p_NV.exp(), log_q_NV.exp()
    forward = -(p_NV * log_q_NV).sum(-1)
    reverse = -(q_NV * log_p_NV).sum(-1)
    entropy_p = -(p_NV * log_p_NV).sum(-1)
    entropy_q = -(q_NV * log_q_NV).sum(-1)
    total_variation = 0.5 * p_NV.sub_(q_NV).abs_().sum(-1)
    columns = (forward, reverse, forward - entropy_p, reverse - entropy_q, total_variation, entropy_q, entropy_p)
    return torch.stack(columns, dim=1)


def of_model(model: Any, head: Head) -> Distribution:
    """Return a causal LM's distribution. Rows of the head behind the vocabulary take no mass."""

    def read(ids_BT: Tensor, inside_BT: Tensor) -> LogProbs:
        hidden_ND = final_hidden(model, input_ids=ids_BT, attention_mask=inside_BT.long())[inside_BT]
        return lambda part: _log_probs(head, hidden_ND[part])

    return read


def compare(
    target: Distribution,
    model: Distribution,
    rows: Sequence[Sequence[int]],
    counts: Sequence[int],
    *,
    vocabulary: int,
    device: torch.device | str = "cpu",
    token_budget: int = TOKEN_BUDGET,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> np.ndarray:
    """Return the means of `distances` over the first `counts` positions of each row of ids, (X, S), float64.

    Raises MetricError where a distance is not finite.
    """
    means_XS = np.empty((len(rows), len(COLUMNS)))
    chunk = max(1, chunk_bytes // (8 * vocabulary))
    for batch in read_batches(list(map(len, rows)), token_budget, progress):
        kept_B = [counts[i] for i in batch]
        counts_B = torch.tensor(kept_B, device=device)
        texts = [rows[i] for i in batch]
        ids_BT, _ = pad(texts, 0, torch.device(device))
        inside_BT = torch.arange(ids_BT.shape[1], device=device) < counts_B[:, None]
        log_p, log_q = target(ids_BT, inside_BT), model(ids_BT, inside_BT)
        chunks = []
        for start in range(0, sum(kept_B), chunk):
            part = slice(start, start + chunk)
            chunks.append(distances(log_p(part), log_q(part)))
        of_texts = torch.cat(chunks).cpu().split(kept_B)
        for i, values_NS in zip(batch, of_texts, strict=True):
            means_XS[i] = values_NS.mean(0).tolist()
    if not np.isfinite(means_XS).all():
        raise MetricError("A distance to the target distribution is not finite: a model's logits are not.")
    return means_XS


def surrogate_distances(
    surrogate: Any,
    model: Any,
    tokenizer: Any,
    rows: Sequence[Sequence[int]],
    ids: Sequence[str],
    *,
    token_budget: int = TOKEN_BUDGET,
    chunk_bytes: int = CHUNK_BYTES,
    progress: Progress = None,
) -> dict[str, Score]:
    """Return a Score for each of `COLUMNS`: the mean over texts of the mean over their tokens.

    A position counts if it predicts a token of its text. The official code drops the first of them, and counts the one
    behind the text. A row holds a text's tokens, at least two. Both models have the tokenizer's vocabulary and stand on
    one device. Only the cross-entropies, which Figure 2 plots, are primary.
    """
    target = of_model(surrogate, probe_head(surrogate, tokenizer))
    own = of_model(model, probe_head(model, tokenizer))
    counts = [len(row) - 1 for row in rows]
    with reading(model) as device, reading(surrogate):
        for one in (surrogate, model):
            check_context(one, max(map(len, rows)), "The longest text does not fit")
        means_XS = compare(
            target,
            own,
            rows,
            counts,
            vocabulary=token_count(tokenizer),
            device=device,
            token_budget=token_budget,
            chunk_bytes=chunk_bytes,
            progress=progress,
        )
    weights_X = np.ones(len(rows))
    scores = {}
    for name, means_X in zip(COLUMNS, means_XS.T, strict=True):
        flags = () if name in PRIMARY else (SECONDARY,)
        scores[name] = distance_score(name, means_X, weights_X, ids, flags)
    return scores


def _log_probs(head: Head, hidden_CD: Tensor) -> Tensor:
    """Return log probabilities, (C, V), float64; products of half-precision weights are not rounded to half."""
    weight_VD, bias_V = head.linear.weight[: head.tokens], head.linear.bias
    logits_CV = hidden_CD.new_empty(len(hidden_CD), len(weight_VD), dtype=accumulator_dtype(weight_VD.dtype))
    multiply_wide(hidden_CD.to(weight_VD.dtype), weight_VD, logits_CV)
    if bias_V is not None:
        logits_CV += bias_V[: head.tokens]
    return head.logit_map.apply(logits_CV).double().log_softmax(-1)
