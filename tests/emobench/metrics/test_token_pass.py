"""Perplexity and entropy from one pass, against a plain loop in float64 that pads nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from emobench.core.errors import MetricError, ModelError
from emobench.metrics.perplexity import entropy, perplexity
from emobench.metrics.token_pass import evaluate_tokens
from emobench.models.head import Head, probe_head

ROWS = [
    {"input_ids": [1, 2, 3, 4, 5, 6, 7], "labels": [-100, -100, -100, 4, 5, 6, 7]},
    {"input_ids": [8, 9]},
    {"input_ids": [10]},  # nothing to predict
    {"input_ids": list(range(11, 31))},
    {"input_ids": [5, 5, 5], "labels": [5, -100, 5]},
    {"input_ids": []},
]
IDS = [f"row-{i}" for i in range(len(ROWS))]


def tiny(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "gpt2":
        return GPT2LMHeadModel(
            GPT2Config(vocab_size=37, n_embd=32, n_layer=2, n_head=2, n_positions=32, initializer_range=0.3)
        ).eval()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=37, initializer_range=0.3, **sizes)).eval()


def plain_loop(model: Any) -> dict[str, tuple[list[float], list[float]]]:
    """Row id -> (nats, entropies) of its target tokens, by full logits of one row in float64."""
    model = model.double()
    found = {}
    for key, row in zip(IDS, ROWS, strict=True):
        labels = row.get("labels", row["input_ids"])
        nats, entropies = [], []
        for position in range(1, len(labels)):
            if labels[position] == -100:
                continue
            with torch.no_grad():
                logq = model(torch.tensor([row["input_ids"]])).logits[0, position - 1].log_softmax(-1)
            nats.append(-logq[labels[position]].item())
            entropies.append(-(logq.exp() * logq).sum().item())
        found[key] = (nats, entropies)
    return found


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("token_budget", [1, 30, 10_000])
def test_perplexity_and_entropy_equal_a_plain_loop(kind: str, token_budget: int) -> None:
    model = tiny(kind)
    seen: list[tuple[int, int]] = []
    sums = evaluate_tokens(
        model, probe_head(model), ROWS, {"entropy"}, token_budget=token_budget, progress=lambda *at: seen.append(at)
    )
    expected = {key: both for key, both in plain_loop(model).items() if both[0]}
    assert seen[-1] == (6, 6)
    assert sums.tokens_R.tolist() == [4, 1, 0, 19, 1, 0]
    for column, score in ((0, perplexity(sums, IDS)), (1, entropy(sums, IDS))):
        assert set(score.examples) == set(expected) == {"row-0", "row-1", "row-3", "row-4"}
        for key, both in expected.items():
            assert score.examples[key] == pytest.approx((np.mean(both[column]), len(both[column])), rel=1e-5)
    everything = np.concatenate([both[0] for both in expected.values()])
    assert perplexity(sums, IDS).value == pytest.approx(math.exp(everything.mean()), rel=1e-5)
    # Rows differ in length and difficulty: a mean of row means would be another number.
    assert abs(everything.mean() - np.mean([np.mean(both[0]) for both in expected.values()])) > 1e-2
    mean_entropy = np.concatenate([both[1] for both in expected.values()]).mean()
    assert entropy(sums, IDS).value == pytest.approx(mean_entropy, rel=1e-5)


def test_nothing_to_score_and_numbers_that_are_none_are_metric_errors() -> None:
    model = tiny("gpt2")
    head = probe_head(model)
    with pytest.raises(MetricError, match="No token can be scored"):
        perplexity(evaluate_tokens(model, head, [{"input_ids": [1]}]), ["a"])
    with pytest.raises(MetricError, match="No token can be scored"):
        perplexity(evaluate_tokens(model, head, []), [])
    with pytest.raises(ModelError, match="33 positions, but GPT2LMHeadModel has 32"):
        evaluate_tokens(model, head, [{"input_ids": [1] * 33}])
    torch.nn.init.constant_(model.transformer.ln_f.weight, float("nan"))
    with pytest.raises(MetricError, match="not finite"):
        perplexity(evaluate_tokens(model, head, ROWS), IDS)


def test_a_perplexity_beyond_numbers_is_a_metric_error() -> None:
    model = tiny("gpt2")
    linear = torch.nn.Linear(32, 37)
    torch.nn.init.constant_(linear.weight, 0.0)
    torch.nn.init.constant_(linear.bias, 0.0)
    with torch.no_grad():
        linear.bias[0] = 5000.0  # every other token has -5000 nats
    with pytest.raises(MetricError, match=r"5000\.0 nats per token"):
        perplexity(evaluate_tokens(model, Head(linear), ROWS), IDS)


class Tokens:
    """A tokenizer of so many tokens: all that a head is told."""

    def __init__(self, count: int) -> None:
        self.count = count

    def get_vocab(self) -> dict[str, int]:
        return {str(i): i for i in range(self.count)}


@torch.no_grad()
def test_padding_rows_of_a_head_take_no_probability_as_they_do_in_plain_hugging_face() -> None:
    """Its loss is over all rows: our perplexity is below it by the factor exp(mean of -log(1 - their probability))."""
    model, ids = tiny("gpt2"), torch.arange(1, 31).view(2, 15)
    plain = math.exp(float(model(input_ids=ids, labels=ids).loss))
    padding_BT = model(input_ids=ids).logits[:, :-1].double().softmax(-1)[..., 31:].sum(-1)
    factor = math.exp(float(-torch.log1p(-padding_BT).mean()))
    rows = [{"input_ids": row} for row in ids.tolist()]
    found = {
        tokens: perplexity(evaluate_tokens(model, probe_head(model, Tokens(tokens)), rows), ["0", "1"]).value
        for tokens in (31, 37)
    }
    assert found[37] == pytest.approx(plain, rel=1e-5)  # no padding, no difference
    assert found[31] == pytest.approx(plain / factor, rel=1e-5)
    assert factor > 1.05
