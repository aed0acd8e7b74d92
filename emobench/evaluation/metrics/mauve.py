"""MAUVE: how close the distribution of generated texts is to that of human texts, by mauve-text.

The score depends on the random start of its k-means (about as much as trained models differ), so several starts are
averaged. It is biased upwards where texts are few, so under 1,000 it is flagged.

Legend: N texts, M texts of the other side, D width of the features.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from emobench.errors import MetricError
from emobench.tasks.scores import Score

SMALL_N = 1000  # texts a side
FEWEST = 20  # texts a side: mauve-text puts 10 texts of a side into a bucket, and needs 2 buckets


@dataclass(frozen=True, kw_only=True)
class Mauve:
    """MAUVE over several k-means seeds; the scores hold the means, the lists the value of each seed."""

    mauve: Score
    mauve_star: Score  # with smoothed histograms (Pillutla et al., JMLR 2023)
    seeds: list[int]
    mauve_values: list[float]
    mauve_star_values: list[float]

    @property
    def kmeans_std(self) -> float:
        """Standard deviation of MAUVE over the k-means seeds (n - 1); 0 for one seed."""
        return float(np.std(self.mauve_values, ddof=1)) if len(self.seeds) > 1 else 0.0


def mauve_scores(
    human_ND: np.ndarray,
    generated_MD: np.ndarray,
    *,
    seeds: Sequence[int] = (25, 26, 27, 28, 29),
    scaling: int = 5,
) -> Mauve:
    """Return MAUVE and MAUVE* of generated against human texts, as mauve-text computes them from features.

    Raises MetricError if a side has fewer than 20 texts, or if the features cannot be clustered.
    """
    _check(human_ND, generated_MD, seeds)
    n = min(len(human_ND), len(generated_MD))
    results = [_once(human_ND, generated_MD, seed, scaling) for seed in seeds]
    plain, star = [r[0] for r in results], [r[1] for r in results]
    flags = ("small_n",) if n < SMALL_N else ()
    return Mauve(
        mauve=_score(plain, n, flags),
        mauve_star=_score(star, n, flags),
        seeds=list(seeds),
        mauve_values=plain,
        mauve_star_values=star,
    )


def _once(human_ND: np.ndarray, generated_MD: np.ndarray, seed: int, scaling: int) -> tuple[float, float]:
    import mauve  # slow to import: it brings transformers, scikit-learn and faiss

    with _quiet():
        out = mauve.compute_mauve(
            p_features=human_ND,
            q_features=generated_MD,
            seed=seed,
            mauve_scaling_factor=scaling,
            verbose=False,
        )
    # The area under the curve may exceed 1 by rounding.
    return min(float(out.mauve), 1.0), min(float(out.mauve_star), 1.0)


def _score(values: list[float], n: int, flags: tuple[str, ...]) -> Score:
    return Score(
        value=float(np.mean(values)), n=n, higher_is_better=True, unit="fraction", flags=flags, aggregate="corpus"
    )


def _check(human_ND: np.ndarray, generated_MD: np.ndarray, seeds: Sequence[int]) -> None:
    if not seeds:
        raise MetricError("MAUVE needs at least one k-means seed; give some, such as [25, 26, 27, 28, 29].")
    for side, features in (("human", human_ND), ("generated", generated_MD)):
        if len(features) < FEWEST:
            raise MetricError(
                f"MAUVE was given {len(features)} {side} texts; it clusters 10 a side into each of at least 2 buckets, "
                f"so {FEWEST} are the fewest, and {SMALL_N} are advised. Raise --limit."
            )
        if not np.isfinite(features).all():
            raise MetricError(f"The features of the {side} texts are not finite; look at the featurizer.")
    if np.ptp(human_ND, axis=0).max() == 0 and np.ptp(generated_MD, axis=0).max() == 0:
        raise MetricError(
            "All human texts have the same features, and so do all generated ones: there is nothing to cluster."
        )


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
