"""Features: the same as mauve-text's own featurizer, and as a plain loop for mean pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, GPT2Model, PreTrainedTokenizerFast

from emobench.core.errors import MetricError
from emobench.metrics.features import embed

TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8 w9 w10 w11 w12", "w2 w2", "w3 w1 w4 w1 w5 w9"]


def tokenizer(special: bool) -> PreTrainedTokenizerFast:
    words = ["[PAD]", "[CLS]", "[UNK]", *(f"w{i}" for i in range(20))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if not special:
        return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]")


def gpt2(cls: Any = GPT2LMHeadModel) -> Any:
    torch.manual_seed(0)
    return cls(GPT2Config(vocab_size=23, n_embd=32, n_layer=2, n_head=2, n_positions=16, initializer_range=0.3)).eval()


def bert(**changes: Any) -> Any:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(
            vocab_size=23, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
            max_position_embeddings=16, initializer_range=0.3, **changes,
        )
    ).eval()  # fmt: skip


@pytest.mark.parametrize("max_length", [5, 16])
def test_last_token_features_equal_mauves_own(max_length: int) -> None:
    from mauve.utils import featurize_tokens_from_model

    model, words = gpt2(GPT2Model), tokenizer(special=False)
    tokens = [words.encode(t, return_tensors="pt", truncation=True, max_length=max_length) for t in TEXTS]
    expected = featurize_tokens_from_model(model, tokens, batch_size=2).numpy()
    found = embed(TEXTS, model, words, pooling="last", max_length=max_length, token_budget=12)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("make", [gpt2, bert])
@pytest.mark.parametrize("token_budget", [1, 1000])
def test_mean_features_equal_a_plain_loop(make: Any, token_budget: int) -> None:
    model, words = make(), tokenizer(special=True)
    seen: list[tuple[int, int]] = []
    found = embed(
        TEXTS, model, words, pooling="mean", max_length=6, token_budget=token_budget,
        progress=lambda *at: seen.append(at),
    )  # fmt: skip
    assert seen[-1] == (5, 5)
    for row, text in zip(found, TEXTS, strict=True):
        ids = words.encode(text)[:6]
        assert ids[0] == 1
        with torch.no_grad():
            expected = model.base_model(torch.tensor([ids]))[0][0].mean(0).numpy()
        np.testing.assert_allclose(row, expected, atol=1e-5)


@pytest.mark.parametrize(("make", "pooling"), [(gpt2, "last"), (bert, "mean"), (lambda: bert(is_decoder=True), "last")])
def test_a_run_tells_a_causal_model_from_an_encoder(make: Any, pooling: Any) -> None:
    model, words = make().train(), tokenizer(special=True)
    expected = embed(TEXTS, model, words, pooling=pooling, max_length=16)
    other = embed(TEXTS, model, words, pooling="last" if pooling == "mean" else "mean", max_length=16)
    found = embed(TEXTS, model, words, pooling="auto", max_length=16)
    assert (found == expected).all()
    assert not np.allclose(found, other)


def test_texts_without_tokens_or_too_long_for_the_model_are_refused() -> None:
    model, words = gpt2(), tokenizer(special=False)
    with pytest.raises(MetricError, match=r"1 of 2 texts \(the first: ''\) have no token"):
        embed(["w1", ""], model, words, pooling="last", max_length=8)
    with pytest.raises(MetricError, match="no text"):
        embed([], model, words, pooling="last", max_length=8)
    with pytest.raises(MetricError, match="17 positions, but GPT2LMHeadModel has 16"):
        embed(["w1 " * 17], model, words, pooling="last", max_length=64)
