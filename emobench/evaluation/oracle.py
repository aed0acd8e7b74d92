"""Exact distances between a trained model Q and the oracle language P, and P's perplexity of the model's own samples.

No surrogate and no sampling error in the distributions: at every position of P's test texts both next-symbol
distributions are known in full. Sums and logarithms are float64.

Legend: B texts, T positions, N positions that count, V symbols (Q and P share all of them; EOS is V - 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from emobench.data.oracle import HiddenMarkovLanguage
from emobench.errors import MetricError, ModelError
from emobench.tasks.scores import Score

DISTANCES = ("forward_cross_entropy", "reverse_cross_entropy", "forward_kl", "reverse_kl", "total_variation", "entropy")


@torch.no_grad()
def oracle_distances(
    model: PreTrainedModel,
    language: HiddenMarkovLanguage,
    texts: Sequence[Sequence[int]],
    *,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Score]:
    """Compare Q and P at every position of P's own texts (word ids without EOS), the EOS position included.

    Returns a Score for each name in `DISTANCES`, averaged over positions; an example is a text, its value the mean
    over its positions, its weight their number.
        forward_cross_entropy  -sum_v P log Q, nats       reverse_cross_entropy  -sum_v Q log P, nats
        forward_kl             sum_v P log(P / Q), nats   reverse_kl             sum_v Q log(Q / P), nats
        total_variation        0.5 sum_v |P - Q|          entropy                -sum_v Q log Q, nats
    The cross-entropies are those of the paper's Figure 2 (A.4.1), with the true P in place of a surrogate.

    Positions past the model's context are left out, and the scores then carry the flag `truncated`. ModelError where
    the model's symbols are not the language's; MetricError where there is no text, or Q is not finite.
    """
    if not texts:
        raise MetricError("The oracle distances need at least one text; give a limit of at least 1.")
    context = getattr(model.config, "max_position_embeddings", None) or max(map(len, texts)) + 1
    was_training = model.training
    model.eval()
    means_X6, counts_X = np.empty((len(texts), len(DISTANCES))), np.empty(len(texts), int)
    for start in range(0, len(texts), batch_size):
        part = slice(start, start + batch_size)
        ids_BT, counts_X[part] = _inputs(texts[part], language.eos_id, context)
        inside_BT = np.arange(ids_BT.shape[1]) < counts_X[part, None]
        log_q_NV = _log_q(model, ids_BT, inside_BT, language.emission_SV.shape[1])
        probs_NS = language.state_probs(ids_BT)[inside_BT]
        log_p_NV = torch.from_numpy(np.log(probs_NS @ language.emission_SV))
        values_N6 = torch.stack(_distances(log_p_NV, log_q_NV), dim=1).numpy()
        means_X6[part] = np.add.reduceat(values_N6, np.cumsum(counts_X[part]) - counts_X[part]) / counts_X[part, None]
        if progress:
            progress(min(start + batch_size, len(texts)), len(texts))
    model.train(was_training)
    flags = ("truncated",) if any(len(text) + 1 > context for text in texts) else ()
    return {name: _score(name, means_X6[:, i], counts_X, flags) for i, name in enumerate(DISTANCES)}


def oracle_perplexity(
    language: HiddenMarkovLanguage, samples: Sequence[Sequence[int]], ended: Sequence[bool] | None = None
) -> Score:
    """Return PPL_oracle: P's perplexity of a model's own samples, the exponential of nats per symbol over all samples.

    `samples` are word ids without EOS; where `ended` is true (all, by default) the EOS that ended the sample counts,
    too. An example is a sample: nats per symbol, weighted by its symbols. Samples without any symbol are left out;
    MetricError where none is left.
    """
    ends = [True] * len(samples) if ended is None else list(ended)
    counts_X = np.array([len(sample) + bool(end) for sample, end in zip(samples, ends, strict=True)], int)
    if not counts_X.sum():
        raise MetricError("PPL_oracle needs at least one sampled symbol; sample more or longer texts.")
    nats_X = -language.log_prob(samples, ends)
    examples = {str(i): (float(nats_X[i] / n), float(n)) for i, n in enumerate(counts_X) if n}
    return Score(
        value=float(np.exp(nats_X.sum() / counts_X.sum())),
        n=len(examples),
        higher_is_better=False,
        unit="perplexity",
        examples=examples,
        aggregate="exp_mean",
    )


def _inputs(texts: Sequence[Sequence[int]], eos_id: int, context: int) -> tuple[np.ndarray, np.ndarray]:
    """Return EOS + words, padded on the right with EOS, (B, T), and how many positions of each row count, (B,)."""
    counts_B = np.array([min(len(text) + 1, context) for text in texts])
    ids_BT = np.full((len(texts), counts_B.max()), eos_id)
    for row, text, count in zip(ids_BT, texts, counts_B, strict=True):
        row[1:count] = text[: count - 1]
    return ids_BT, counts_B


def _log_q(model: PreTrainedModel, ids_BT: np.ndarray, inside_BT: np.ndarray, symbols: int) -> Tensor:
    """Return log Q at the positions that count, (N, V), float64, on the CPU."""
    ids, inside = (torch.from_numpy(array).to(model.device) for array in (ids_BT, inside_BT))
    logits_BTV = model(input_ids=ids, attention_mask=inside.long()).logits
    if logits_BTV.shape[-1] != symbols:
        raise ModelError(
            f"The model has {logits_BTV.shape[-1]} symbols, the oracle language {symbols}; "
            "the exact comparison needs a model made for that language."
        )
    log_q_NV = logits_BTV[inside].cpu().double().log_softmax(-1)
    if not torch.isfinite(log_q_NV).all():
        raise MetricError("The model's logits are not finite; its distance to the oracle cannot be computed.")
    return log_q_NV


def _distances(log_p_NV: Tensor, log_q_NV: Tensor) -> tuple[Tensor, ...]:
    """Return `DISTANCES` per position, each (N,)."""
    p_NV, q_NV = log_p_NV.exp(), log_q_NV.exp()
    forward, reverse = -(p_NV * log_q_NV).sum(-1), -(q_NV * log_p_NV).sum(-1)
    entropy_p, entropy_q = -(p_NV * log_p_NV).sum(-1), -(q_NV * log_q_NV).sum(-1)
    total_variation = 0.5 * (p_NV - q_NV).abs().sum(-1)
    return forward, reverse, forward - entropy_p, reverse - entropy_q, total_variation, entropy_q


def _score(name: str, means_X: np.ndarray, counts_X: np.ndarray, flags: tuple[str, ...]) -> Score:
    return Score(
        value=float(np.average(means_X, weights=counts_X)),
        n=len(means_X),
        higher_is_better=None if name == "entropy" else False,
        unit="fraction" if name == "total_variation" else "nats",
        flags=flags,
        examples={str(i): (float(v), float(n)) for i, (v, n) in enumerate(zip(means_X, counts_X, strict=True))},
    )
