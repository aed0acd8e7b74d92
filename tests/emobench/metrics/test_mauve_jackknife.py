"""Pseudo-values of MAUVE: a brute-force delete-one, and the spread of scores over texts that are drawn anew."""

from __future__ import annotations

import numpy as np
import pytest

from emobench.metrics.mauve import Buckets, bucket_texts, mauve_scores, without_each


def texts(n: int, shift: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.normal(size=(n, 6)).astype("f4"), (rng.normal(size=(n, 6)) + shift).astype("f4")


def mauve_of(human_N: np.ndarray, generated_N: np.ndarray, count: int, smoothing: float) -> float:
    """mauve-text's value for given buckets, point by point of its curve."""
    p, q = (np.bincount(side, minlength=count) + smoothing for side in (human_N, generated_N))
    p, q = p / p.sum(), q / q.sum()
    points = [(1.0, 0.0)]
    for w in np.linspace(1e-6, 1 - 1e-6, 25):
        r = w * p + (1 - w) * q
        points.append(
            tuple(np.exp(-5 * sum(a * np.log(a / b) for a, b in zip(s, r, strict=True) if a)) for s in (q, p))
        )
    points.append((0.0, 1.0))
    x, y = np.array(points).T
    by_x, by_y = np.argsort(x), np.argsort(y)
    return 0.5 * float(np.trapezoid(y[by_x], x[by_x]) + np.trapezoid(x[by_y], y[by_y]))


# The last buckets hold one human text alone, one generated text alone, and none: what leaves them empties them.
LABELS = ([0, 0, 1, 1, 2, 2, 2, 3, 0, 1], [0, 1, 1, 0, 2, 2, 4, 2, 0, 1])


@pytest.mark.parametrize("smoothing", [0.0, 0.5])
@pytest.mark.parametrize("drawn", [False, True])
def test_mauve_without_each_prompt_is_that_of_the_other_texts(smoothing: float, drawn: bool) -> None:
    buckets = Buckets(6, *(np.array(side) for side in LABELS))
    if drawn:
        buckets = next(bucket_texts(*texts(100, 0.5, np.random.default_rng(0)), seeds=[3]))
    human, generated = buckets.human_N, buckets.generated_M
    expected = [
        mauve_of(np.delete(human, i), np.delete(generated, i), buckets.count, smoothing) for i in range(len(human))
    ]
    np.testing.assert_allclose(without_each(buckets, smoothing), expected, rtol=1e-10)
    assert np.ptp(expected) > 1e-4


def test_examples_are_pseudo_values_over_all_runs_and_seeds() -> None:
    rng = np.random.default_rng(1)
    human, first = texts(60, 0.4, rng)
    runs, seeds = [first, texts(60, 0.4, rng)[1]], [5, 6]
    ids = [f"p{i}" for i in range(60)]
    found = mauve_scores(human, runs, seeds=seeds, ids=ids)[0]
    clusterings = [b for run in runs for b in bucket_texts(human, run, seeds)]
    for name, smoothing in (("mauve", 0.0), ("mauve_star", 0.5)):
        score = found[name]
        assert score.aggregate == "jackknife"
        assert list(score.examples) == ids
        for place in (0, 17, 59):
            without = np.mean(
                [
                    mauve_of(np.delete(b.human_N, place), np.delete(b.generated_M, place), b.count, smoothing)
                    for b in clusterings
                ]
            )
            expected = 60 * score.value - 59 * without
            assert score.examples[ids[place]] == pytest.approx((expected, 1.0), rel=1e-8)


def test_equal_texts_have_no_noise() -> None:
    human, _ = texts(60, 0.4, np.random.default_rng(2))
    buckets = next(bucket_texts(human, human, seeds=[0]))
    np.testing.assert_allclose(without_each(buckets, 0.0), 1.0, atol=1e-9)


def test_texts_that_are_no_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="3 human and 2 generated"):
        without_each(Buckets(2, np.array([0, 1, 1]), np.array([0, 1])), 0.0)
