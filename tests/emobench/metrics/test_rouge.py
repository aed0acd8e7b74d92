"""ROUGE: rouge-score's own numbers, and values that can be counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from emobench.core.errors import MetricError
from emobench.metrics.rouge import rouge

VARIANTS = ("rouge1", "rouge2", "rougeL")
REFERENCES = ["the cats sat on the mats", "a man walked home", "numbers: 1, 2 and 3"]
GENERATED = ["the cat sat on a mat", "home walked a man", ""]
IDS = ["a", "b", "c"]
# Few words, so that they repeat; letters that rouge-score drops or lowers, and words that it stems.
TEXT = st.lists(st.sampled_from(["a", "b", "C", "running", "runs", "é", "...", "x-y"]), max_size=25).map(" ".join)


@pytest.mark.parametrize("stemming", [False, True])
def test_scores_equal_rouge_score(stemming: bool) -> None:
    found = rouge([GENERATED], REFERENCES, IDS, stemming=stemming)
    scorer = RougeScorer(list(VARIANTS), use_stemmer=stemming)
    direct = [scorer.score(r, g) for r, g in zip(REFERENCES, GENERATED, strict=True)]
    for variant in VARIANTS:
        values = [d[variant].fmeasure for d in direct]
        assert found[variant].examples == {key: (v, 1.0) for key, v in zip(IDS, values, strict=True)}
        assert found[variant].value == pytest.approx(np.mean(values))
        assert (found[variant].n, found[variant].unit, found[variant].higher_is_better) == (3, "fraction", True)


@given(reference=TEXT, text=TEXT, stemming=st.booleans())
def test_any_text_gets_rouge_scores_own_number(reference: str, text: str, stemming: bool) -> None:
    found = rouge([[text]], [reference], ["a"], stemming=stemming)
    direct = RougeScorer(list(VARIANTS), use_stemmer=stemming).score(reference, text)
    assert {v: found[v].value for v in VARIANTS} == {v: direct[v].fmeasure for v in VARIANTS}


def test_values_by_hand_and_stemming_is_off() -> None:
    # "the", "sat", "on" of 6 words each: 1/2; one bigram, "sat on", of 5; reversed words share a subsequence of 2 of 4.
    found = rouge([GENERATED[:2]], REFERENCES[:2], IDS[:2])
    assert {v: s.examples["a"][0] for v, s in found.items() if s.examples} == pytest.approx(
        {"rouge1": 3 / 6, "rouge2": 1 / 5, "rougeL": 3 / 6}
    )
    assert found["rougeL"].examples is not None
    assert found["rougeL"].examples["b"][0] == pytest.approx(2 / 4)
    assert rouge([["cat"]], ["cats"], ["a"], variants=["rouge1"])["rouge1"].value == 0
    assert rouge([["cat"]], ["cats"], ["a"], variants=["rouge1"], stemming=True)["rouge1"].value == 1


def test_samples_of_one_prompt_are_averaged_and_runs_are_kept() -> None:
    found = rouge([["a b", "x"], ["a c", "y"]], ["a b", "y"], ["p", "q"], variants=["rouge1"])["rouge1"]
    assert found.examples == {"p": (0.75, 2.0), "q": (0.5, 2.0)}
    assert found.value == pytest.approx(0.625)
    assert found.repeats == ((0.5,), (0.75,))
    assert found.n == 2


def test_no_text_is_a_metric_error() -> None:
    with pytest.raises(MetricError, match="no generated text"):
        rouge([], [], [])
