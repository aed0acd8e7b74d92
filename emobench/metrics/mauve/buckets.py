"""The buckets of MAUVE: which cluster of all texts each human and each generated text falls into.

mauve-text's `compute_mauve` returns its histograms and not the labels, which the jackknife needs, and fits its PCA
again for each k-means seed. So its steps (`cluster_feats` in mauve/compute_mauve.py, 0.4) are taken here: rows of
length 1, PCA to 90 % of the variance, faiss's k-means on generated and human texts together. The tests hold the two
equal.

Legend: N human texts, M generated texts, D width of the features, R reduced width.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

TEXTS_A_BUCKET = 10
VARIANCE, RESTARTS, ITERATIONS = 0.9, 5, 500


@dataclass(frozen=True, eq=False)
class Buckets:
    """The bucket of each text, by one k-means."""

    count: int
    human_N: np.ndarray
    generated_M: np.ndarray

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of human and of generated texts in each bucket."""
        human, generated = (np.bincount(side, minlength=self.count) for side in (self.human_N, self.generated_M))
        return human, generated


def bucket_texts(human_ND: np.ndarray, generated_MD: np.ndarray, seeds: Sequence[int]) -> Iterator[Buckets]:
    """Yield the buckets of each k-means seed; the PCA, in which nothing is random, is fitted once for all of them."""
    reduced_R = _reduce(np.vstack([generated_MD, human_ND]))
    count = max(2, round(min(len(human_ND), len(generated_MD)) / TEXTS_A_BUCKET))
    for seed in seeds:
        labels = _kmeans(reduced_R, count, seed)
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


def _kmeans(reduced_R: np.ndarray, count: int, seed: int) -> np.ndarray:
    import faiss

    # seed + 2: mauve-text's own numbering.
    kmeans = faiss.Kmeans(
        reduced_R.shape[1], count, niter=ITERATIONS, nredo=RESTARTS, update_index=True, seed=seed + 2, verbose=False
    )
    with _quiet():
        kmeans.train(reduced_R)
    _, labels = kmeans.index.search(reduced_R, 1)
    return labels.reshape(-1)


@contextmanager
def _quiet() -> Iterator[None]:
    """Send file descriptor 2 to nowhere: faiss warns from C++ of few points a cluster, whatever `verbose` says."""
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(nowhere)
        os.close(kept)
