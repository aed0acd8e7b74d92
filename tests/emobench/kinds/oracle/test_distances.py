"""The exact distances against plain loops: every hidden path, every symbol, one text and one position at a time."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from emobench.core.errors import MetricError, ModelError
from emobench.data.oracle.language import HiddenMarkovLanguage
from emobench.kinds.oracle.evaluate import oracle_distances, oracle_perplexity
from emobench.metrics.distances import DISTANCES

sys.path.insert(0, str(Path(__file__).parents[2] / "data" / "oracle"))  # the package of tests has no __init__.py

from test_language import EOS, probability_by_paths, small_language  # type: ignore[import-not-found]


@pytest.fixture(scope="module")
def language() -> HiddenMarkovLanguage:
    return small_language()


def tiny_gpt2(symbols: int = 7, context: int = 16) -> GPT2LMHeadModel:
    torch.manual_seed(0)
    # Sharp enough that Q and P, and the two directions, differ plainly.
    sizes: Any = {"n_positions": context, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.5}
    return GPT2LMHeadModel(GPT2Config(vocab_size=symbols, bos_token_id=EOS, eos_token_id=EOS, **sizes)).double()


@pytest.fixture(scope="module")
def model() -> GPT2LMHeadModel:
    return tiny_gpt2().eval()  # with dropout it would be another model at each call


def distances_by_loops(model: GPT2LMHeadModel, language: HiddenMarkovLanguage, prefix: tuple[int, ...]) -> list[float]:
    with torch.no_grad():
        logits_V = model.eval()(torch.tensor([[EOS, *prefix]])).logits[0, -1].tolist()
    norm = sum(math.exp(z) for z in logits_V)
    q = [math.exp(z) / norm for z in logits_V]
    p = [probability_by_paths(language, (*prefix, v)) / probability_by_paths(language, prefix) for v in range(7)]
    pairs = list(zip(p, q, strict=True))
    return [
        -sum(pv * math.log(qv) for pv, qv in pairs),
        -sum(qv * math.log(pv) for pv, qv in pairs),
        sum(pv * math.log(pv / qv) for pv, qv in pairs),
        sum(qv * math.log(qv / pv) for pv, qv in pairs),
        sum(abs(pv - qv) for pv, qv in pairs) / 2,
        -sum(qv * math.log(qv) for _, qv in pairs),
    ]


def test_distances_agree_with_loops_over_all_short_texts(
    model: GPT2LMHeadModel, language: HiddenMarkovLanguage
) -> None:
    texts = [list(words) for n in range(3) for words in itertools.product(range(6), repeat=n)]
    texts += [[5, 0, 1, 4], [2, 2, 3, 1, 0]]  # batches hold texts of unequal length
    known = {}
    for prefix in {tuple(text[:n]) for text in texts for n in range(len(text) + 1)}:
        known[prefix] = distances_by_loops(model, language, prefix)
    rows = [[known[tuple(text[:n])] for n in range(len(text) + 1)] for text in texts]
    over_positions = np.mean(list(itertools.chain(*rows)), axis=0)

    scores = oracle_distances(model, language, texts, token_budget=20)
    assert tuple(scores) == DISTANCES
    for i, name in enumerate(DISTANCES):
        score = scores[name]
        assert score.value == pytest.approx(over_positions[i], rel=1e-10)
        assert (score.n, score.flags, score.aggregate) == (len(texts), (), "mean")
        assert score.examples is not None
        for x, row in enumerate(rows):
            assert score.examples[str(x)] == pytest.approx((np.mean(row, axis=0)[i], len(row)), rel=1e-10)
    assert scores["total_variation"].unit == "fraction"
    assert scores["entropy"].higher_is_better is None


def test_positions_past_the_context_are_left_out_and_flagged(language: HiddenMarkovLanguage) -> None:
    model = tiny_gpt2(context=8)
    text = [0, 3, 1, 5, 2, 4, 0, 1, 3]
    scores, whole = (oracle_distances(model, language, [words, [1]]) for words in (text, text[:7]))
    for name in DISTANCES:
        examples, expected = scores[name].examples, whole[name].examples
        assert examples is not None
        assert expected is not None
        assert examples["0"] == pytest.approx(expected["0"], rel=1e-10)
        assert examples["0"][1] == 8
        assert (scores[name].flags, whole[name].flags) == (("truncated",), ())


def test_oracle_perplexity_by_hand(language: HiddenMarkovLanguage) -> None:
    samples, ended = [[3, 1], [0, 5, 5], [], []], [True, False, True, False]
    probabilities = [probability_by_paths(language, p) for p in ((3, 1, EOS), (0, 5, 5), (EOS,))]
    score = oracle_perplexity(language, samples, ended)
    assert score.value == pytest.approx(math.prod(probabilities) ** (-1 / 7), rel=1e-12)
    assert score.examples is not None
    assert set(score.examples) == {"0", "1", "2"}  # the empty sample without EOS has no symbol
    assert score.examples["1"] == pytest.approx((-math.log(probabilities[1]) / 3, 3), rel=1e-12)
    assert (score.n, score.unit, score.aggregate) == (3, "perplexity", "exp_mean")
    nats = sum(value * weight for value, weight in score.examples.values())
    assert score.value == pytest.approx(math.exp(nats / 7), rel=1e-12)


def test_what_cannot_be_computed_is_an_error(model: GPT2LMHeadModel, language: HiddenMarkovLanguage) -> None:
    with pytest.raises(MetricError, match="at least one text"):
        oracle_distances(model, language, [])
    with pytest.raises(MetricError, match="at least one sampled symbol"):
        oracle_perplexity(language, [[]], [False])
    with pytest.raises(ModelError, match="8 symbols, the oracle language 7"):
        oracle_distances(tiny_gpt2(symbols=8), language, [[1]])
    broken = tiny_gpt2()
    torch.nn.init.constant_(broken.transformer.ln_f.weight, math.nan)
    with pytest.raises(ModelError, match="not finite"):
        oracle_distances(broken, language, [[1]])
