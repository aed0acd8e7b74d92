"""Self-BLEU: the mean of nltk's sentence BLEU with all other texts as references, as Texygen computes it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from emobench.core.errors import MetricError
from emobench.metrics.repetition import self_bleu
from emobench.tasks.scores import SECONDARY


def by_nltk(texts: Sequence[str]) -> float:
    words = [text.split() for text in texts]
    smooth = SmoothingFunction().method1
    values = [
        sentence_bleu(words[:i] + words[i + 1 :], text, smoothing_function=smooth) for i, text in enumerate(words)
    ]
    return sum(values) / len(values)  # type: ignore[arg-type]


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
