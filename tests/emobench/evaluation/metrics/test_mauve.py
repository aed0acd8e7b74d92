"""MAUVE: mauve-text's own numbers, over several seeds; too little data is an error and never a number."""

from __future__ import annotations

import numpy as np
import pytest

from emobench.errors import MetricError
from emobench.evaluation.metrics.mauve import mauve_scores


def clouds(n: int, shift: float, width: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, width)).astype("f4"), (rng.normal(size=(n, width)) + shift).astype("f4")


def test_scores_are_the_means_of_what_mauve_text_gives(capfd: pytest.CaptureFixture[str]) -> None:
    import mauve

    human, generated = clouds(120, 0.3)
    found = mauve_scores(human, generated, seeds=[25, 7, 3])
    assert capfd.readouterr() == ("", "")  # faiss warns of 240 points for 12 clusters when called directly
    direct = [mauve.compute_mauve(p_features=human, q_features=generated, seed=s) for s in (25, 7, 3)]
    assert found.mauve_values == [d.mauve for d in direct]
    assert found.mauve_star_values == [d.mauve_star for d in direct]
    assert found.mauve.value == pytest.approx(np.mean([d.mauve for d in direct]))
    assert found.mauve_star.value == pytest.approx(np.mean([d.mauve_star for d in direct]))
    assert found.kmeans_std == pytest.approx(np.std([d.mauve for d in direct], ddof=1))
    assert found.kmeans_std > 0
    assert found.seeds == [25, 7, 3]
    assert mauve_scores(human, generated, seeds=[25, 7, 3]) == found  # again, the same


def test_nearer_clouds_score_higher_and_say_so() -> None:
    near, far = mauve_scores(*clouds(200, 0.1), seeds=[0]), mauve_scores(*clouds(200, 2.0), seeds=[0])
    assert near.mauve.value > 0.9
    assert far.mauve.value < 0.1
    score = near.mauve
    assert (score.n, score.unit, score.higher_is_better, score.aggregate) == (200, "fraction", True, "corpus")
    assert score.examples is None
    assert near.kmeans_std == 0.0


def test_small_n_is_the_smaller_side_under_a_thousand() -> None:
    human, generated = clouds(1000, 0.1, width=3)
    assert mauve_scores(human, generated, seeds=[0]).mauve.flags == ()
    fewer = mauve_scores(human, generated[:999], seeds=[0])
    assert fewer.mauve.flags == fewer.mauve_star.flags == ("small_n",)
    assert fewer.mauve.n == 999


def test_what_cannot_be_clustered_is_a_metric_error() -> None:
    human, generated = clouds(20, 0.1)
    assert 0 < mauve_scores(human, generated, seeds=[0]).mauve.value <= 1
    with pytest.raises(MetricError, match="given 19 generated texts"):
        mauve_scores(human, generated[:19])
    with pytest.raises(MetricError, match="given 0 human texts"):
        mauve_scores(human[:0], generated)
    with pytest.raises(MetricError, match="generated texts are not finite"):
        mauve_scores(human, np.full_like(generated, np.nan))
    with pytest.raises(MetricError, match="nothing to cluster"):
        mauve_scores(np.ones_like(human), np.ones_like(human))
    with pytest.raises(MetricError, match="at least one k-means seed"):
        mauve_scores(human, generated, seeds=[])
