"""MAUVE: how close the distribution of generated texts is to that of human texts (Pillutla et al., NeurIPS 2021).

The score depends on the random start of its k-means (about as much as trained models differ), so several starts are
averaged. It is biased upwards where texts are few, so under 1,000 it is flagged. Its examples are pseudo-values: see
`mauve_jackknife`.

Legend: N human texts, M generated texts of a sampling run, D width of the features.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.mauve.buckets import Buckets, bucket_texts
from emobench.metrics.mauve.jackknife import SCALING, WEIGHTS_W, without_each
from emobench.tasks.scores import Measure, Score

SMALL_N = 1000  # texts a side
FEWEST = 20  # texts a side: mauve-text puts 10 texts of a side into a bucket, and needs 2 buckets
SMOOTHING = {"mauve": 0.0, "mauve_star": 0.5}
"""What is added to each bucket's counts; MAUVE* is Krichevsky and Trofimov's choice (Pillutla et al., JMLR 2023)."""

MAUVE = {name: Measure(True, "fraction", fewest=SMALL_N) for name in SMOOTHING}
MAUVE_RUNS = "mauve.json"
"""{"runs": [{"sampling_run": 0, "kmeans_seed": 25, "mauve": 0.9, "mauve_star": 0.9, "curve": [[x, y], ...]}, ...]}"""


@dataclass(frozen=True, kw_only=True)
class MauveRun:
    """One clustering of the texts of one sampling run."""

    sampling_run: int
    kmeans_seed: int
    mauve: float
    mauve_star: float
    curve: list[list[float]]
    """The divergence curve of `mauve` from (1, 0) to (0, 1): exp(-5 KL(q || r)), exp(-5 KL(p || r)); p is human."""


@dataclass(frozen=True, kw_only=True)
class MauveResult:
    """MAUVE over sampling runs and k-means seeds: the scores of the means, and what they are made of."""

    scores: dict[str, Score]
    runs: list[MauveRun]

    def to_json(self) -> str:
        """Return the runs as one JSON document."""
        return json.dumps({"runs": [asdict(run) for run in self.runs]}) + "\n"


def mauve_scores(
    human_ND: np.ndarray,
    runs_MD: Sequence[np.ndarray],
    *,
    seeds: Sequence[int] = (25, 26, 27, 28, 29),
    ids: Sequence[str] | None = None,
) -> MauveResult:
    """Return MAUVE and MAUVE* of each sampling run's texts against the human ones, as mauve-text computes them.

    `ids` name the prompts where text i of every run continues the prompt of human text i: with them, the scores have
    examples. Raises MetricError if a side has fewer than 20 texts, or if the features cannot be clustered.
    """
    for generated_MD in runs_MD:
        _check(human_ND, generated_MD, seeds)
    found = [
        (MauveRun(sampling_run=place, kmeans_seed=seed, **_values(buckets)), buckets)
        for place, generated_MD in enumerate(runs_MD)
        for seed, buckets in zip(seeds, bucket_texts(human_ND, generated_MD, seeds), strict=True)
    ]
    n = min(len(human_ND), *map(len, runs_MD))
    runs, all_buckets = [run for run, _ in found], [buckets for _, buckets in found]
    return MauveResult(
        scores={name: _score(name, runs, all_buckets, n, len(seeds), ids) for name in SMOOTHING}, runs=runs
    )


def _values(buckets: Buckets) -> dict:
    """Return what a MauveRun holds of the values that mauve-text gives for two histograms."""
    # By its module's full name: in `mauve` itself, that name is a function. Slow to import: it brings transformers.
    from mauve.compute_mauve import get_divergence_curve_for_multinomials

    found = {}
    for name, smoothing in SMOOTHING.items():
        p_K, q_K = ((side + smoothing) / (side + smoothing).sum() for side in buckets.counts())
        curve = get_divergence_curve_for_multinomials(p_K, q_K, WEIGHTS_W, SCALING)
        found[name] = _area(curve)
        if name == "mauve":
            found["curve"] = curve.tolist()
    return found


def _area(curve: np.ndarray) -> float:
    """Return the mean of the areas under a curve towards both axes, as mauve-text does; at most 1 but for rounding."""
    from sklearn.metrics import auc

    x, y = curve.T
    by_x, by_y = np.argsort(x), np.argsort(y)
    return min(float(0.5 * (auc(x[by_x], y[by_x]) + auc(y[by_y], x[by_y]))), 1.0)


def _score(
    name: str, runs: list[MauveRun], buckets: list[Buckets], n: int, seeds: int, ids: Sequence[str] | None
) -> Score:
    values = [getattr(run, name) for run in runs]
    value = float(np.mean(values))
    examples = None
    if ids is not None:
        without_N = np.mean([without_each(each, SMOOTHING[name]) for each in buckets], axis=0)
        pseudo_N = len(ids) * value - (len(ids) - 1) * without_N
        examples = {key: (pseudo, 1.0) for key, pseudo in zip(ids, pseudo_N.tolist(), strict=True)}
    return MAUVE[name].score(
        value,
        n,
        flags=("small_n",) if n < SMALL_N else (),
        examples=examples,
        aggregate="corpus" if examples is None else "jackknife",
        repeats=tuple(tuple(values[at : at + seeds]) for at in range(0, len(values), seeds)),
    )


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
