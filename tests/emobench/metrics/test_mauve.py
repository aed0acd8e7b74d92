"""MAUVE: mauve-text's own numbers, over runs and seeds; too little data is an error and never a number."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from emobench.core.errors import MetricError
from emobench.metrics.features import embed
from emobench.metrics.mauve import Buckets, bucket_texts, mauve_scores, without_each


def clouds(n: int, shift: float, width: int = 16, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, width)).astype("f4"), (rng.normal(size=(n, width)) + shift).astype("f4")


# Sizes for each of scikit-learn's ways to a PCA: by the covariance (many rows), whole (few rows), and wide rows.
@pytest.mark.parametrize(("n", "width"), [(120, 16), (40, 30), (60, 300)])
def test_scores_are_the_means_of_what_mauve_text_gives(n: int, width: int, capfd: pytest.CaptureFixture[str]) -> None:
    import mauve

    human, first = clouds(n, 0.3, width)
    runs, seeds = [first, clouds(n, 0.5, width, seed=1)[1]], [25, 7, 3]
    scores, written = mauve_scores(human, runs, seeds=seeds)
    assert capfd.readouterr() == ("", "")  # faiss warns of few points for 12 clusters when called directly
    direct = [[mauve.compute_mauve(p_features=human, q_features=run, seed=s) for s in seeds] for run in runs]
    for name in ("mauve", "mauve_star"):
        score = scores[name]
        assert score.repeats == tuple(tuple(getattr(d, name) for d in row) for row in direct)
        assert score.value == pytest.approx(np.mean(score.repeats), rel=1e-15)
    assert len({value for row in scores["mauve"].repeats for value in row}) > 2
    assert mauve_scores(human, runs, seeds=seeds) == (scores, written)  # again, the same
    written = json.loads(written)["runs"]
    assert [(run["sampling_run"], run["kmeans_seed"]) for run in written] == [(r, s) for r in (0, 1) for s in seeds]
    for run, each in zip(written, [d for row in direct for d in row], strict=True):
        assert (run["mauve"], run["mauve_star"]) == (each.mauve, each.mauve_star)
        assert run["curve"] == each.divergence_curve.tolist()
        assert (run["curve"][0], run["curve"][-1]) == ([1, 0], [0, 1])


@pytest.mark.parametrize("name", ["small", pytest.param("base-en-7m", marks=pytest.mark.slow)])
def test_scores_of_texts_are_what_mauve_text_gives_by_itself(
    name: str, request: pytest.FixtureRequest, small_model: Path, small_data: Path, tmp_path: Path
) -> None:
    """Its own tokenizing, featurizing and clustering, from texts to scores."""
    import mauve
    from transformers import AutoModel, AutoTokenizer

    folder = tmp_path / f"gpt2-{name}"  # it takes models with gpt2 in their name
    folder.symlink_to(small_model if name == "small" else request.getfixturevalue("real_model"))
    texts = [json.loads(line)["text"] for line in (small_data / "wikitext2.train.jsonl").read_text().splitlines()]
    human, generated = texts[:40], [" ".join(sorted(text.split())) for text in texts[40:75]]
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    ours = [embed(side, model, tokenizer, pooling="last", max_length=48) for side in (human, generated)]
    found = mauve_scores(ours[0], [ours[1]], seeds=(25, 7))[0]
    given = {"p_text": human, "q_text": generated, "featurize_model_name": str(folder), "max_text_length": 48}
    direct = [mauve.compute_mauve(**given, seed=seed) for seed in (25, 7)]
    for metric in ("mauve", "mauve_star"):
        assert found[metric].repeats[0] == pytest.approx([getattr(one, metric) for one in direct], abs=1e-6)
        assert 0 < found[metric].value < 1


def test_sides_of_unequal_length_are_mauve_texts_too() -> None:
    import mauve

    human, generated = clouds(120, 0.3)
    scores, _ = mauve_scores(human, [generated[:90]], seeds=[1])
    assert scores["mauve"].repeats == ((mauve.compute_mauve(human, generated[:90], seed=1).mauve,),)
    assert scores["mauve"].n == 90


def test_nearer_clouds_score_higher_and_say_so() -> None:
    near, far = (
        mauve_scores(human, [generated], seeds=[0])[0]["mauve"]
        for human, generated in (clouds(200, 0.1), clouds(200, 2.0))
    )
    assert near.value > 0.9
    assert far.value < 0.1
    assert (near.n, near.unit, near.higher_is_better, near.aggregate) == (200, "fraction", True, "corpus")
    assert near.examples is None


def test_small_n_is_the_smaller_side_under_a_thousand() -> None:
    human, generated = clouds(1000, 0.1, width=3)
    assert mauve_scores(human, [generated], seeds=[0])[0]["mauve"].flags == ()
    fewer = mauve_scores(human, [generated, generated[:999]], seeds=[0])[0]
    assert fewer["mauve"].flags == fewer["mauve_star"].flags == ("small_n",)
    assert fewer["mauve"].n == 999


def test_what_cannot_be_clustered_is_a_metric_error() -> None:
    human, generated = clouds(20, 0.1)
    assert 0 < mauve_scores(human, [generated], seeds=[0])[0]["mauve"].value <= 1
    with pytest.raises(MetricError, match="given 19 generated texts"):
        mauve_scores(human, [generated, generated[:19]])
    with pytest.raises(MetricError, match="given 0 human texts"):
        mauve_scores(human[:0], [generated])
    with pytest.raises(MetricError, match="generated texts are not finite"):
        mauve_scores(human, [np.full_like(generated, np.nan)])
    with pytest.raises(MetricError, match="nothing to cluster"):
        mauve_scores(np.ones_like(human), [np.ones_like(human)])
    with pytest.raises(MetricError, match="at least one k-means seed"):
        mauve_scores(human, [generated], seeds=[])


# Pseudo-values of MAUVE: a brute-force delete-one, and the spread of scores over texts that are drawn anew.


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
