"""MAUVE: how close the distribution of generated texts is to that of human texts (Pillutla et al., NeurIPS 2021).

The score depends on the random start of its k-means (about as much as trained models differ), so several starts are
averaged. It is biased upwards where texts are few, so under 1,000 it is flagged.

mauve-text's `compute_mauve` returns its histograms and not the labels, which the jackknife needs, and fits its PCA
again for each k-means seed. So its steps (`cluster_feats` in mauve/compute_mauve.py, 0.4) are taken here: rows of
length 1, PCA to 90 % of the variance, faiss's k-means on generated and human texts together. The tests hold the two
equal.

MAUVE is no mean over texts, so that a text has no value of its own. Its pseudo-value, n MAUVE - (n - 1) (MAUVE without
it), takes that place (Tukey's jackknife): the pseudo-values' standard error estimates that of the score, and because a
prompt's human text is the same for all objectives, two objectives' pseudo-values are compared prompt by prompt, where
the luck of the human texts cancels. Buckets stay as they are when a text leaves: what another clustering would have
given is the spread over k-means seeds, which is reported beside it.

Legend: N human texts or prompts, M generated texts of a sampling run, D width of the features, R reduced width,
K buckets, W weights of the mixture, 2 the human and the generated side.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import pseudo_values
from emobench.tasks.scores import Measure, Score

SMALL_N = 1000  # texts a side
TEXTS_A_BUCKET = 10
FEWEST = 20  # texts a side: mauve-text puts 10 texts of a side into a bucket, and needs 2 buckets
VARIANCE, RESTARTS, ITERATIONS = 0.9, 5, 500
WEIGHTS_W = np.linspace(1e-6, 1 - 1e-6, 25)
SCALING = 5.0
"""mauve-text's defaults: the mixtures r = w p + (1 - w) q of the curve, and the factor of its exponents."""
SMOOTHING = {"mauve": 0.0, "mauve_star": 0.5}
"""Added to each bucket's counts; MAUVE* is Krichevsky and Trofimov's choice (Pillutla et al., JMLR 2023)."""

MAUVE = {
    "mauve": Measure(
        True,
        "fraction",
        fewest=SMALL_N,
        title="MAUVE",
        definition="The closeness of the distributions of generated and of human texts: the area under the "
        "divergence curve of their quantized features. 100 % means equal distributions.",
        source="Pillutla et al., NeurIPS 2021",
    ),
    "mauve_star": Measure(
        True,
        "fraction",
        fewest=SMALL_N,
        title="MAUVE*",
        definition="MAUVE with smoothed estimates of the two distributions, which depends less on the number of texts.",
        source="Pillutla et al., JMLR 2023",
    ),
}
MAUVE_RUNS = "mauve.json"
"""{"runs": [{"sampling_run": 0, "kmeans_seed": 25, "mauve": 0.9, "mauve_star": 0.9, "curve": [[x, y], ...]}, ...]}

A curve is the divergence curve of `mauve` from (1, 0) to (0, 1): exp(-5 KL(q || r)), exp(-5 KL(p || r)); p is human."""


def mauve_scores(
    human_ND: np.ndarray,
    runs_MD: Sequence[np.ndarray],
    *,
    seeds: Sequence[int] = (25, 26, 27, 28, 29),
    ids: Sequence[str] | None = None,
) -> tuple[dict[str, Score], str]:
    """Return MAUVE and MAUVE* of each sampling run's texts against the human ones, as mauve-text computes them.

    Also each clustering's values and curve, as the content of `MAUVE_RUNS`. The scores are of the means.
    `ids` name the prompts where text i of every run continues the prompt of human text i: with them, the scores have
    examples. Raises MetricError if a side has fewer than 20 texts, or if the features cannot be clustered.
    """
    for generated_MD in runs_MD:
        _check(human_ND, generated_MD, seeds)
    runs, clusterings = [], []
    for place, generated_MD in enumerate(runs_MD):
        for seed, buckets in zip(seeds, bucket_texts(human_ND, generated_MD, seeds), strict=True):
            runs.append({"sampling_run": place, "kmeans_seed": seed, **_values(buckets)})
            clusterings.append(buckets)
    n = min(len(human_ND), *map(len, runs_MD))
    scores = {}
    flags = ("small_n",) if n < SMALL_N else ()
    for name, smoothing in SMOOTHING.items():
        values = [run[name] for run in runs]
        value = float(np.mean(values))
        more: dict[str, Any] = {"aggregate": "corpus"}
        if ids is not None:
            without = [without_each(each, smoothing) for each in clusterings]
            more = {"aggregate": "jackknife", "examples": pseudo_values(value, ids, np.mean(without, axis=0))}
        repeats = []
        for at in range(0, len(values), len(seeds)):
            repeats.append(tuple(values[at : at + len(seeds)]))
        scores[name] = MAUVE[name].score(value, n, flags=flags, repeats=tuple(repeats), **more)
    return scores, json.dumps({"runs": runs}) + "\n"


def _values(buckets: Buckets) -> dict[str, Any]:
    """Return MAUVE, MAUVE* and the curve of MAUVE, as mauve-text computes them from two histograms."""
    # By its module's full name: in `mauve` itself, that name is a function. Slow to import: it brings transformers.
    from mauve.compute_mauve import get_divergence_curve_for_multinomials
    from sklearn.metrics import auc

    values: dict[str, Any] = {}
    curves = []
    for name, smoothing in SMOOTHING.items():
        human_K, generated_K = buckets.counts(smoothing)
        p_K, q_K = human_K / human_K.sum(), generated_K / generated_K.sum()
        curve = get_divergence_curve_for_multinomials(p_K, q_K, WEIGHTS_W, SCALING)
        # The mean of the areas under the curve towards both axes; at most 1 but for rounding.
        x, y = curve.T
        by_x, by_y = np.argsort(x), np.argsort(y)
        below = auc(x[by_x], y[by_x])
        beside = auc(y[by_y], x[by_y])
        values[name] = min(float(0.5 * (below + beside)), 1.0)
        curves.append(curve.tolist())
    return {**values, "curve": curves[0]}


def _check(human_ND: np.ndarray, generated_MD: np.ndarray, seeds: Sequence[int]) -> None:
    if not seeds:
        raise MetricError("MAUVE needs at least one k-means seed; give some, such as [25, 26, 27, 28, 29].")
    for side, features in (("human", human_ND), ("generated", generated_MD)):
        if len(features) < FEWEST:
            raise MetricError(
                f"MAUVE was given {len(features)} {side} texts; it clusters 10 a side into each of at least 2 buckets, "
                f"so {FEWEST} are the fewest, and {SMALL_N} are advised. Use more texts, or a larger --limit where "
                "one is given."
            )
        if not np.isfinite(features).all():
            raise MetricError(f"The features of the {side} texts are not finite; look at the featurizer.")
    if np.ptp(human_ND, axis=0).max() == 0 and np.ptp(generated_MD, axis=0).max() == 0:
        raise MetricError(
            "All human texts have the same features, and so do all generated ones: there is nothing to cluster."
        )


@dataclass(frozen=True, eq=False)
class Buckets:
    """The bucket of each text, by one k-means."""

    count: int
    human_N: np.ndarray
    generated_M: np.ndarray

    def counts(self, smoothing: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of human and of generated texts in each bucket, plus `smoothing`."""
        human_K = np.bincount(self.human_N, minlength=self.count)
        generated_K = np.bincount(self.generated_M, minlength=self.count)
        return human_K + smoothing, generated_K + smoothing


def bucket_texts(human_ND: np.ndarray, generated_MD: np.ndarray, seeds: Sequence[int]) -> Iterator[Buckets]:
    """Yield the buckets of each k-means seed; the PCA, in which nothing is random, is fitted once for all of them."""
    reduced_R = _reduce(np.vstack([generated_MD, human_ND]))
    count = max(2, round(min(len(human_ND), len(generated_MD)) / TEXTS_A_BUCKET))
    import faiss

    # With a minimum of 1, faiss does not warn of few points.
    options = {"niter": ITERATIONS, "nredo": RESTARTS, "update_index": True, "min_points_per_centroid": 1}
    for seed in seeds:
        # seed + 2: mauve-text's own numbering.
        kmeans = faiss.Kmeans(reduced_R.shape[1], count, seed=seed + 2, verbose=False, **options)
        kmeans.train(reduced_R)
        labels = kmeans.index.search(reduced_R, 1)[1].reshape(-1)
        yield Buckets(count, human_N=labels[len(generated_MD) :], generated_M=labels[: len(generated_MD)])


def _reduce(texts_D: np.ndarray) -> np.ndarray:
    """Return the leading principal components of the rows, (N + M, R), float32."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import normalize

    unit_D = normalize(texts_D, norm="l2", axis=1)
    # All components: of scikit-learn's solvers only the exact ones are chosen then, whatever mauve-text's seed.
    pca = PCA(n_components=None, whiten=False).fit(unit_D)
    kept = 1 + int(np.argmax(np.cumsum(pca.explained_variance_ratio_) >= VARIANCE))
    return pca.transform(unit_D)[:, :kept].astype(np.float32)


def without_each(buckets: Buckets, smoothing: float) -> np.ndarray:
    """Return MAUVE without prompt i's human and generated text, for each i, (N,); `smoothing` is added to each count.

    Prompt i has human text i and generated text i. With n texts a side p, q and r are counts over the same total, so
    that one text that leaves changes the terms of its own bucket, and the total: nothing else is summed again.
    """
    human_N, generated_N = buckets.human_N, buckets.generated_M
    if len(human_N) != len(generated_N):
        raise ValueError(f"{len(human_N)} human and {len(generated_N)} generated texts are no pairs")
    human_K, generated_K = buckets.counts(smoothing)
    terms_2WK = _terms(human_K, generated_K)
    lost_human_2WK = terms_2WK - _terms(human_K - 1, generated_K)
    lost_generated_2WK = terms_2WK - _terms(human_K, generated_K - 1)
    lost_both_2WK = terms_2WK - _terms(human_K - 1, generated_K - 1)
    lost_apart_2WN = lost_human_2WK[..., human_N] + lost_generated_2WK[..., generated_N]
    lost_2WN = np.where(human_N == generated_N, lost_both_2WK[..., human_N], lost_apart_2WN)
    total = len(human_N) - 1 + smoothing * buckets.count
    return _area((terms_2WK.sum(-1, keepdims=True) - lost_2WN) / total)


def _terms(human_K: np.ndarray, generated_K: np.ndarray) -> np.ndarray:
    """Return c log(c / r) of both sides' counts c, (2, W, K); r mixes them, and 0 log 0 = 0."""
    # Empty buckets lose no text: what stands for them below zero is never read.
    counts_2K = np.maximum(np.stack([human_K, generated_K]), 0)
    weights_W1 = WEIGHTS_W[:, None]
    mixed_WK = weights_W1 * counts_2K[0] + (1 - weights_W1) * counts_2K[1]
    counts_2WK = np.broadcast_to(counts_2K[:, None], (2, *mixed_WK.shape))
    ratio = np.divide(counts_2WK, mixed_WK, out=np.ones_like(counts_2WK), where=counts_2WK > 0)
    return counts_2WK * np.log(ratio)


def _area(divergences_2WN: np.ndarray) -> np.ndarray:
    """Return the area under each curve exp(-5 KL(q || r)), exp(-5 KL(p || r)) from (1, 0) to (0, 1), (N,).

    Both coordinates are monotone in w, so that no point needs sorting, and mauve-text's mean of the areas towards both
    axes is this one.
    """
    curve_2WN = np.exp(-SCALING * divergences_2WN)
    y_WN, x_WN = curve_2WN
    zeros, ones = np.zeros_like(y_WN[:1]), np.ones_like(y_WN[:1])
    y = np.concatenate([zeros, y_WN, ones])
    x = np.concatenate([ones, x_WN, zeros])
    return -np.asarray(np.trapezoid(y, x, axis=0))  # x falls
