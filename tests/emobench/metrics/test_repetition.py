"""Repetition and distinct-n: counts by hand, and the authors' formula with the n-gram that their code leaves out.

Self-BLEU is the mean of nltk's sentence BLEU with all other texts as references, as Texygen computes it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from emobench.core.errors import MetricError
from emobench.metrics.repetition import distinct, repetition, self_bleu
from emobench.tasks.scores import SECONDARY

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
    assert (found["rep_2"].aggregate, found["diversity"].aggregate) == ("mean", "jackknife")


def test_repetition_needs_four_words_somewhere_in_each_run() -> None:
    for runs in ([["a b c", ""]], [["a b c", "d e f"], ["a b c d", "x y z w"]]):
        with pytest.raises(MetricError, match="No continuation of a sampling run has 4 words"):
            repetition(runs, IDS)
    assert repetition([["a b c d", ""]], IDS)["rep_4"].examples == {"p": (0.0, 1.0)}


def test_distinct_by_hand() -> None:
    found = distinct(RUNS, IDS)
    # Run 0: a b c d e f among 10 words, ab ba cd de ef, aba bab cde def; run 1: a b c d x among 5, ab bc cd, abc bcd.
    assert {name: score.repeats for name, score in found.items()} == {
        "distinct_1": ((6 / 10,), (5 / 5,)),
        "distinct_2": ((5 / 10,), (3 / 5,)),
        "distinct_3": ((4 / 10,), (2 / 5,)),
    }
    assert found["distinct_1"].value == pytest.approx(0.8)
    assert (found["distinct_1"].n, found["distinct_1"].flags) == (2, (SECONDARY,))
    with pytest.raises(MetricError, match="no word to count"):
        distinct([["a"], [" \n"]], ["p"])


def test_words_end_at_white_space_alone() -> None:
    found = repetition([["The the, the\nthe , the the"]], ["p"])["rep_2"]
    assert found.value == pytest.approx(1 / 6)  # The+the, the,+the the+the the+, ,+the the+the
    assert math.isclose(distinct([["The the, the"]], ["p"])["distinct_1"].value, 1.0)


@pytest.mark.parametrize("seed", range(3))
def test_a_pseudo_value_is_that_of_the_metric_without_the_prompt(seed: int) -> None:
    generator = random.Random(seed)

    def text() -> str:
        return " ".join(generator.choices("abcdef", k=generator.randrange(12)))

    runs = [[*(text() for _ in range(8)), "", "a b c d", "x y z w v"] for _ in range(2)]
    ids = [f"p{i}" for i in range(len(runs[0]))]
    found = {**distinct(runs, ids), **repetition(runs, ids)}
    for i, name in enumerate(ids):
        left, of_left = [run[:i] + run[i + 1 :] for run in runs], ids[:i] + ids[i + 1 :]
        without = {**distinct(left, of_left), **repetition(left, of_left)}
        for metric in ("distinct_1", "distinct_2", "distinct_3", "diversity"):
            score = found[metric]
            pseudo = len(ids) * score.value - (len(ids) - 1) * without[metric].value
            assert score.aggregate == "jackknife"
            assert (score.examples or {})[name] == (pytest.approx(pseudo, abs=1e-12), 1.0)


def test_there_are_no_pseudo_values_where_one_prompt_has_all_words() -> None:
    found = {**distinct([["a b c d e", ""]], IDS), **repetition([["a b c d e", ""]], IDS)}
    assert {found[name].examples for name in ("distinct_1", "distinct_3", "diversity")} == {None}
    assert found["diversity"].aggregate == "corpus"
    assert distinct([["a b"]], ["p"])["distinct_1"].examples is None


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
    found = self_bleu(runs, [str(i) for i in range(15)])
    assert found.repeats == tuple((pytest.approx(by_nltk(run), rel=1e-12, abs=1e-15),) for run in runs)
    assert found.value == pytest.approx((found.repeats[0][0] + found.repeats[1][0]) / 2)
    assert (found.n, found.aggregate, found.flags) == (15, "jackknife", (SECONDARY,))
    assert found.higher_is_better is False


def test_equal_texts_are_one_and_foreign_ones_nothing() -> None:
    assert self_bleu([["a b c d e"] * 3], ["p", "q", "r"]).value == pytest.approx(1)
    assert self_bleu([["a b c d e", "f g h i j"]], ["p", "q"]).value == 0
    with pytest.raises(MetricError, match="at least two"):
        self_bleu([["a b"]], ["p"])
    with pytest.raises(MetricError, match="at least two"):
        self_bleu([], [])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("count", "longest"), [(0, 9), (3, 6), (12, 5), (12, 40)])
def test_a_pseudo_value_is_that_of_self_bleu_without_the_prompt(seed: int, count: int, longest: int) -> None:
    runs = [[*drawn(count, longest, seed + run), "a b", "y"] for run in (10, 20) if count] or [["a b", "b a b", "c"]]
    size = len(runs[0])
    ids = [f"p{i}" for i in range(size)]
    found = self_bleu(runs, ids)
    for i, name in enumerate(ids):
        without = sum(by_nltk(run[:i] + run[i + 1 :]) for run in runs) / len(runs)
        assert (found.examples or {})[name] == (pytest.approx(size * found.value - (size - 1) * without, abs=1e-12), 1)


def test_two_texts_have_no_pseudo_values() -> None:
    found = self_bleu([["a b c d e", "a b c d f"]], ["p", "q"])
    assert (found.examples, found.aggregate) == (None, "corpus")
