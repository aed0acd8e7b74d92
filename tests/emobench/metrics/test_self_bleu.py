"""Self-BLEU: the mean of nltk's sentence BLEU with all other texts as references, as Texygen computes it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu

from emobench.errors import MetricError
from emobench.metrics.self_bleu import self_bleu
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
    found = self_bleu(runs)
    assert found.repeats == tuple((pytest.approx(by_nltk(run), rel=1e-12, abs=1e-15),) for run in runs)
    assert found.value == pytest.approx((found.repeats[0][0] + found.repeats[1][0]) / 2)
    assert (found.n, found.aggregate, found.flags, found.examples) == (15, "corpus", (SECONDARY,), None)
    assert found.higher_is_better is False


def test_equal_texts_are_one_and_foreign_ones_nothing() -> None:
    assert self_bleu([["a b c d e"] * 3]).value == pytest.approx(1)
    assert self_bleu([["a b c d e", "f g h i j"]]).value == 0
    with pytest.raises(MetricError, match="at least two"):
        self_bleu([["a b"]])
    with pytest.raises(MetricError, match="at least two"):
        self_bleu([])
