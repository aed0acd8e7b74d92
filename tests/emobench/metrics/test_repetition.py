"""Repetition and distinct-n: counts by hand, and the authors' formula with the n-gram that their code leaves out.

Self-BLEU is the mean of nltk's sentence BLEU with all other texts as references, as Texygen computes it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import corpus_by_run, mean_by_prompt, pseudo_values
from emobench.metrics.coherence import coherence
from emobench.metrics.repetition import distinct, repetition, self_bleu
from emobench.tasks.scores import SECONDARY, Measure

RUNS = [["a b a b a b", "c d e f"], ["a b c d", "x"]]
IDS = ["p", "q"]


def test_repetition_by_hand() -> None:
    found = repetition(RUNS, IDS)
    # Run 0: ab ba ab ba ab and cd de ef; run 1: ab bc cd, and nothing of one word.
    assert found["rep_2"].value == pytest.approx(3 / 11)
    assert found["rep_2"].examples == {"p": (pytest.approx(3 / 8), 8.0), "q": (0.0, 3.0)}
    assert found["rep_2"].repeats == ((pytest.approx(3 / 8),), (0.0,))
    assert found["rep_3"].value == pytest.approx(2 / 8)  # aba bab aba bab; cde def; abc bcd
    assert found["rep_4"].value == pytest.approx(1 / 5)  # abab baba abab; cdef; abcd
    assert found["diversity"].value == pytest.approx((8 / 11) * (6 / 8) * (4 / 5))
    first = (1 - 3 / 8) * (1 - 2 / 6) * (1 - 1 / 4)
    assert found["diversity"].repeats == ((pytest.approx(first),), (1.0,))
    assert [score.higher_is_better for score in found.values()] == [False, False, False, True]
    assert {score.flags for score in found.values()} == {(SECONDARY,)}
    assert (found["rep_2"].aggregate, found["diversity"].aggregate) == ("mean", "corpus")


def test_repetition_needs_four_words_somewhere_in_each_run() -> None:
    for runs in ([["a b c", ""]], [["a b c", "d e f"], ["a b c d", "x y z w"]]):
        with pytest.raises(MetricError, match="No continuation of a sampling run has 4 words"):
            repetition(runs, IDS)
    assert repetition([["a b c d", ""]], IDS)["rep_4"].examples == {"p": (0.0, 1.0)}


def test_distinct_by_hand() -> None:
    found = distinct(RUNS)
    # Run 0: a b c d e f among 10 words, ab ba cd de ef, aba bab cde def; run 1: a b c d x among 5, ab bc cd, abc bcd.
    assert {name: score.repeats for name, score in found.items()} == {
        "distinct_1": ((6 / 10,), (5 / 5,)),
        "distinct_2": ((5 / 10,), (3 / 5,)),
        "distinct_3": ((4 / 10,), (2 / 5,)),
    }
    assert found["distinct_1"].value == pytest.approx(0.8)
    assert (found["distinct_1"].n, found["distinct_1"].flags) == (2, (SECONDARY,))
    with pytest.raises(MetricError, match="no word to count"):
        distinct([["a"], [" \n"]])


def test_words_end_at_white_space_alone() -> None:
    found = repetition([["The the, the\nthe , the the"]], ["p"])["rep_2"]
    assert found.value == pytest.approx(1 / 6)  # The+the, the,+the the+the the+, ,+the the+the
    assert math.isclose(distinct([["The the, the"]])["distinct_1"].value, 1.0)


def by_nltk(texts: Sequence[str]) -> float:
    words = [text.split() for text in texts]
    smooth = SmoothingFunction().method1
    values = [
        sentence_bleu(words[:i] + words[i + 1 :], text, smoothing_function=smooth) for i, text in enumerate(words)
    ]
    return sum(values) / len(values)


def drawn(count: int, longest: int, seed: int) -> list[str]:
    """Texts that repeat words, of all lengths: some alike, some empty, some with no word in common."""
    generator = random.Random(seed)
    texts = [" ".join(generator.choices("abcd", k=generator.randrange(longest))) for _ in range(count)]
    return [*texts, texts[0], "z", "y y y y y y"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("longest", [4, 30])
def test_self_bleu_is_that_of_nltk(seed: int, longest: int) -> None:
    runs = [drawn(12, longest, seed), drawn(12, longest, seed + 100)]
    found = self_bleu(runs)
    assert found.repeats == tuple((pytest.approx(by_nltk(run), rel=1e-12, abs=1e-15),) for run in runs)
    assert found.value == pytest.approx((found.repeats[0][0] + found.repeats[1][0]) / 2)
    assert (found.n, found.aggregate, found.flags) == (15, "corpus", (SECONDARY,))
    assert found.higher_is_better is False


def test_equal_texts_are_one_and_foreign_ones_nothing() -> None:
    assert self_bleu([["a b c d e"] * 3]).value == pytest.approx(1)
    assert self_bleu([["a b c d e", "f g h i j"]]).value == 0
    with pytest.raises(MetricError, match="at least two"):
        self_bleu([["a b"]])
    with pytest.raises(MetricError, match="at least two"):
        self_bleu([])


# Coherence: cosines against a plain loop; blank continuations are left out, and vectors that are none refused.

VECTORS = {"a": [1.0, 0.0], "b": [0.0, 2.0], "c": [3.0, 4.0], "d": [-1.0, -1.0]}
PREFIXES = np.array([[2.0, 0.0], [1.0, 1.0]], dtype=np.float32)


def encode(texts: list[str]) -> np.ndarray:
    return np.array([VECTORS[text] for text in texts], dtype=np.float32)


def test_cosines_by_prompt_and_by_run() -> None:
    found = coherence(PREFIXES, [["a", "c"], ["b", " \n"]], ["p", "q"], encode)
    expected = 7 / (5 * 2**0.5)
    assert found.examples == {"p": (0.5, 2.0), "q": (pytest.approx(expected), 1.0)}
    assert found.repeats == ((pytest.approx((1 + expected) / 2),), (0.0,))
    assert found.value == pytest.approx((1 + 0 + expected) / 3)
    assert (found.n, found.unit, found.flags, found.higher_is_better) == (2, "cosine", (SECONDARY,), True)
    assert coherence(PREFIXES, [["d", "d"]], ["p", "q"], encode).repeats[0][0] == pytest.approx(-(1 + 2**-0.5) / 2)


def test_nothing_to_compare_is_a_metric_error() -> None:
    with pytest.raises(MetricError, match="All continuations are blank"):
        coherence(PREFIXES, [["", ""]], ["p", "q"], encode)
    with pytest.raises(MetricError, match="embeddings of zero"):
        coherence(PREFIXES * 0, [["a", "b"]], ["p", "q"], encode)


# Means over texts: values, examples and runs follow from one another; what has no weight is nowhere.

TOKENS = Measure(False, "tokens")


def test_values_weights_examples_and_runs_agree() -> None:
    rng = np.random.default_rng(0)
    values, weights = rng.normal(size=(3, 5)), rng.integers(1, 4, size=(3, 5))
    weights[1, 0] = 0
    weights[:, 2] = 0
    values[:, 2] = np.nan
    found = mean_by_prompt(values, list("abcde"), TOKENS, weights_RN=weights)
    assert set(found.examples) == set("abde")
    expected = np.average(np.delete(values, 2, 1), weights=np.delete(weights, 2, 1))
    assert found.value == pytest.approx(expected)
    means, sums = zip(*found.examples.values(), strict=True)
    assert found.value == pytest.approx(np.average(means, weights=sums))
    for run in range(3):
        by_run = np.average(np.delete(values[run], 2), weights=np.delete(weights[run], 2))
        assert found.repeats[run] == (pytest.approx(by_run),)


@pytest.mark.parametrize("empty", [[0], [2], [0, 1, 2]])
def test_a_run_that_weighs_nothing_is_an_error(empty: list[int]) -> None:
    weights = np.ones((3, 5))
    weights[empty] = 0
    with pytest.raises(MetricError, match="No generated text of a sampling run can be measured"):
        mean_by_prompt(np.ones((3, 5)), list("abcde"), TOKENS, weights_RN=weights)


def test_an_exponential_mean_is_of_the_examples_nats() -> None:
    found = mean_by_prompt([[1.0, 2.0], [3.0, 6.0]], ["a", "b"], TOKENS, weights_RN=[[1, 3], [1, 1]], exponential=True)
    assert found.value == pytest.approx(np.exp((1 + 6 + 3 + 6) / 6))
    assert found.examples == {"a": (2.0, 2.0), "b": (3.0, 4.0)}
    assert [run for (run,) in found.repeats] == pytest.approx([np.exp(7 / 4), np.exp(9 / 2)])
    assert (found.n, found.aggregate, found.unit, found.higher_is_better) == (2, "exp_mean", "tokens", False)
    assert mean_by_prompt([[1.0]], ["a"], TOKENS).aggregate == "mean"


def test_pseudo_values_of_a_mean_are_its_values() -> None:
    values = np.array([1.0, 4.0, 2.0, 9.0])
    without = (values.sum() - values) / 3
    found = pseudo_values(values.mean(), list("abcd"), without)
    assert found == {key: (pytest.approx(value), 1.0) for key, value in zip("abcd", values, strict=True)}
    assert pseudo_values(1.0, ["a"], [np.nan]) is pseudo_values(1.0, ["a"], [1.0]) is None
    assert pseudo_values(1.0, ["a", "b"], [1.0, np.nan]) is None
    assert pseudo_values(1.0, ["a", "b"], [0.5, 1.0]) == {"a": (1.5, 1.0), "b": (1.0, 1.0)}


def test_a_corpus_metric_is_the_mean_of_its_runs_unless_it_is_given() -> None:
    found = corpus_by_run([1.0, 4.0], 7, TOKENS)
    assert (found.value, found.n, found.aggregate, found.examples) == (2.5, 7, "corpus", None)
    assert found.repeats == ((1.0,), (4.0,))
    assert corpus_by_run([1.0, 4.0], 7, TOKENS, value=2.0).value == 2.0
