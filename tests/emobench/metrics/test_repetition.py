"""Repetition and distinct-n: counts by hand, and the authors' formula with the n-gram that their code leaves out."""

from __future__ import annotations

import math

import pytest

from emobench.errors import MetricError
from emobench.metrics.repetition import distinct, repetition
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
