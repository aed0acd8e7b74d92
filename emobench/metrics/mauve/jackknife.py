"""MAUVE without each of its prompts: how much a score owes to the texts that happened to be drawn.

MAUVE is no mean over texts, so that a text has no value of its own. Its pseudo-value, n MAUVE - (n - 1) (MAUVE without
it), takes that place (Tukey's jackknife): the pseudo-values' standard error estimates that of the score, and because a
prompt's human text is the same for all objectives, two objectives' pseudo-values are compared prompt by prompt, where
the luck of the human texts cancels. Buckets stay as they are when a text leaves: what another clustering would have
given is the spread over k-means seeds, which is reported beside it.

Legend: N prompts, K buckets, W weights of the mixture, 2 the human and the generated side.
"""

from __future__ import annotations

import numpy as np

from emobench.metrics.mauve.buckets import Buckets

WEIGHTS_W = np.linspace(1e-6, 1 - 1e-6, 25)
SCALING = 5.0
"""mauve-text's defaults: the mixtures r = w p + (1 - w) q of the curve, and the factor of its exponents."""


def without_each(buckets: Buckets, smoothing: float) -> np.ndarray:
    """Return MAUVE without prompt i's human and generated text, for each i, (N,); `smoothing` is added to each count.

    Prompt i has human text i and generated text i. With n texts a side p, q and r are counts over the same total, so
    that one text that leaves changes the terms of its own bucket, and the total: nothing else is summed again.
    """
    human_N, generated_N = buckets.human_N, buckets.generated_M
    if len(human_N) != len(generated_N):
        raise ValueError(f"{len(human_N)} human and {len(generated_N)} generated texts are no pairs")
    human_K, generated_K = (side + smoothing for side in buckets.counts())
    terms_2WK = _terms(human_K, generated_K)
    lost_human_2WK = terms_2WK - _terms(human_K - 1, generated_K)
    lost_generated_2WK = terms_2WK - _terms(human_K, generated_K - 1)
    lost_both_2WK = terms_2WK - _terms(human_K - 1, generated_K - 1)
    lost_2WN = np.where(
        human_N == generated_N,
        lost_both_2WK[..., human_N],
        lost_human_2WK[..., human_N] + lost_generated_2WK[..., generated_N],
    )
    total = len(human_N) - 1 + smoothing * buckets.count
    return _area((terms_2WK.sum(-1, keepdims=True) - lost_2WN) / total)


def _terms(human_K: np.ndarray, generated_K: np.ndarray) -> np.ndarray:
    """Return c log(c / r) of both sides' counts c, (2, W, K); r mixes them, and 0 log 0 = 0."""
    # Empty buckets lose no text: what stands for them below zero is never read.
    counts_2K = np.maximum(np.stack([human_K, generated_K]), 0)
    mixed_WK = WEIGHTS_W[:, None] * counts_2K[0] + (1 - WEIGHTS_W[:, None]) * counts_2K[1]
    counts_2WK = np.broadcast_to(counts_2K[:, None], (2, *mixed_WK.shape))
    ratio = np.divide(counts_2WK, mixed_WK, out=np.ones_like(counts_2WK), where=counts_2WK > 0)
    return counts_2WK * np.log(ratio)


def _area(divergences_2WN: np.ndarray) -> np.ndarray:
    """Return the area under each curve exp(-5 KL(q || r)), exp(-5 KL(p || r)) from (1, 0) to (0, 1), (N,).

    Both coordinates are monotone in w, so that no point needs sorting, and mauve-text's mean of the areas towards both
    axes is this one.
    """
    curve_2WN = np.exp(-SCALING * divergences_2WN)
    ends = [np.full((1, curve_2WN.shape[-1]), end) for end in (0.0, 1.0)]
    y = np.concatenate([ends[0], curve_2WN[0], ends[1]])
    x = np.concatenate([ends[1], curve_2WN[1], ends[0]])
    return ((x[:-1] - x[1:]) * (y[:-1] + y[1:]) / 2).sum(0)
