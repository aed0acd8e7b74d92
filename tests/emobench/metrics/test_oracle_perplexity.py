"""PPL_oracle against a plain loop in float64, one text at a time, by an oracle with a tokenizer of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from emobench.core.errors import MetricError
from emobench.metrics.token_pass import oracle_perplexity

# Two sampling runs of two prompts; "w1 w" + "2 w3" has a word on the border.
RUNS = [[("w1 w", "2 w3"), ("w4 w5 ", "w6 w7 w8")], [("w1 w", " w9"), ("w4 w5 ", "")]]
IDS = ["p", "q"]


def tokenizer(special: bool) -> PreTrainedTokenizerFast:
    words = ["[BOS]", "[EOS]", "[UNK]", *(f"w{i}" for i in range(10))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if special:
        tokens = [("[BOS]", 0), ("[EOS]", 1)]
        backend.post_processor = processors.TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=tokens)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", bos_token="[BOS]", eos_token="[EOS]")


def oracle() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=13, n_embd=32, n_layer=2, n_head=2, n_positions=16, initializer_range=0.3)
    ).eval()


def plain_loop(model: Any, ids: list[int], counted: Callable[[int], bool]) -> list[float]:
    """Nats of the tokens at the positions that count, in float64."""
    with torch.no_grad():
        log_q = model.double()(torch.tensor([ids])).logits[0].log_softmax(-1)
    model.float()
    return [-log_q[at - 1, ids[at]].item() for at in range(1, len(ids)) if counted(at)]


# By tokenizer and scope: the positions of the ids of each text that count.
COUNTED = {
    # w1 w2 w3; w4 w5 w6 w7 w8; w1 w w9; w4 w5: no target first, the word on the border is the continuation's
    (False, "text"): [{1, 2}, {1, 2, 3, 4}, {1, 2}, {1}],
    (False, "continuation"): [{1, 2}, {2, 3, 4}, {2}, set()],
    # the same one later; BOS and EOS are no words of the text
    (True, "text"): [{1, 2, 3}, {1, 2, 3, 4, 5}, {1, 2, 3}, {1, 2}],
    (True, "continuation"): [{2, 3}, {3, 4, 5}, {3}, set()],
}


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("scope", ["text", "continuation"])
def test_perplexity_is_that_of_a_plain_loop_over_the_tokens_that_count(special: bool, scope: str) -> None:
    model, words = oracle(), tokenizer(special)
    texts = [a + b for run in RUNS for a, b in run]
    nats = [
        plain_loop(model, words(text)["input_ids"], lambda at, some=some: at in some)
        for text, some in zip(texts, COUNTED[special, scope], strict=True)
    ]
    seen: list[tuple[int, int]] = []
    found = oracle_perplexity(RUNS, IDS, model, words, scope=scope, progress=lambda *at: seen.append(at))
    assert seen[-1] == (4, 4)
    assert found.value == pytest.approx(math.exp(np.mean([value for text in nats for value in text])), rel=1e-5)
    assert found.examples == {
        "p": pytest.approx((np.mean(nats[0] + nats[2]), len(nats[0] + nats[2])), rel=1e-5),
        "q": pytest.approx((np.mean(nats[1] + nats[3]), len(nats[1] + nats[3])), rel=1e-5),
    }
    by_run = [math.exp(np.mean(nats[0] + nats[1])), math.exp(np.mean(nats[2] + nats[3]))]
    assert found.repeats == tuple((pytest.approx(value, rel=1e-5),) for value in by_run)
    assert (found.n, found.unit, found.aggregate, found.higher_is_better) == (2, "perplexity", "exp_mean", False)


def test_what_cannot_be_scored_is_a_metric_error() -> None:
    model, words = oracle(), tokenizer(special=False)
    with pytest.raises(MetricError, match=r"PPL_oracle: .* 17 positions, but GPT2LMHeadModel has 16"):
        oracle_perplexity([[("w1 " * 9, "w2 " * 8)]], ["p"], model, words, scope="text")
    with pytest.raises(MetricError, match="No token can be scored"):
        oracle_perplexity([[("w1 ", "")]], ["p"], model, words, scope="continuation")
