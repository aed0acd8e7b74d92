"""Sampling: the distribution is the model's own, and the text does not depend on the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from emobench.core.errors import ConfigError, MetricError, ModelError
from emobench.inference.decoding.ancestral import descend, row_uniforms
from emobench.inference.decoding.continuations import sample_continuations
from emobench.inference.decoding.request import Decoding, Sampling, eos_ids

EOS = 3


def tiny(kind: str, vocab: int = 37) -> Any:
    """Two layers with large weights, so that the next-token distributions are far from uniform."""
    torch.manual_seed(0)
    special: Any = {"vocab_size": vocab, "bos_token_id": 0, "eos_token_id": EOS, "initializer_range": 0.3}
    if kind == "gpt2":
        return GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **special)).eval()
    sizes: Any = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(max_position_embeddings=64, **sizes, **special)).eval()


def decoding(*, length: int, token_budget: int = 16384, **rule: Any) -> Decoding:
    return Decoding(rule=Sampling(**rule), length=length, token_budget=token_budget)


PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14], [15, 16], [17] * 9, [18, 19, 20, 21], [22, 5], [23, 6, 9]]
KEYS = [f"prompt-{i}" for i in range(len(PROMPTS))]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_batch_size_subset_and_padding_change_nothing(kind: str) -> None:
    model = tiny(kind)
    alone = decoding(length=12, samples=3, token_budget=1)
    whole = decoding(length=12, samples=3, token_budget=100_000)
    expected = sample_continuations(model, PROMPTS, prompt_keys=KEYS, decoding=alone)
    assert sample_continuations(model, PROMPTS, prompt_keys=KEYS, decoding=whole) == expected
    some = [6, 2]
    part = sample_continuations(model, [PROMPTS[i] for i in some], prompt_keys=[KEYS[i] for i in some], decoding=whole)
    assert part == [expected[i] for i in some]
    texts = {tuple(c.ids) for row in expected for c in row}
    assert len(texts) == 3 * len(PROMPTS)  # samples differ from one another
    other_seed = decoding(length=12, samples=3, seed=1)
    assert sample_continuations(model, PROMPTS, prompt_keys=KEYS, decoding=other_seed) != expected


def plain_loop(model: Any, prompt: list[int], key: str, sample: int, sampling: Decoding) -> list[int]:
    """Draw without a cache, one token at a time, walking the tree by sums over slices of the vocabulary."""
    size = 64  # the tree over 37 tokens
    uniform = row_uniforms(sampling.rule.seed, key, sample, sampling.new_tokens, 6)
    ids = list(prompt)
    for step in range(sampling.new_tokens):
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].double()
        logits[EOS] = -torch.inf
        probs = np.zeros(size)
        probs[:37] = logits.softmax(-1).numpy()
        low, high = 0, size
        for level in range(6):
            middle = (low + high) // 2
            if uniform[step, level] * probs[low:high].sum() >= probs[low:middle].sum():
                low = middle
            else:
                high = middle
        ids.append(low)
    return ids[len(prompt) :]


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_generate_with_cache_and_padding_equals_a_plain_loop(kind: str) -> None:
    model = tiny(kind)
    sampling = decoding(length=8, samples=2, seed=4)
    found = sample_continuations(model, PROMPTS, prompt_keys=KEYS, decoding=sampling)
    for prompt, key, rows in zip(PROMPTS, KEYS, found, strict=True):
        assert [row.ids for row in rows] == [plain_loop(model, prompt, key, s, sampling) for s in range(2)]


@pytest.mark.parametrize("suppressed", [False, True])
def test_first_tokens_follow_the_softmax(suppressed: bool) -> None:
    model = tiny("gpt2")
    draws = 4000
    sampling = decoding(length=1, samples=draws, suppress_eos=suppressed, token_budget=10**6)
    rows = sample_continuations(model, [[5, 6]], prompt_keys=["k"], decoding=sampling)[0]
    with torch.no_grad():
        logits = model(torch.tensor([[5, 6]])).logits[0, -1].double()
    assert logits.softmax(-1)[EOS] > 0.005  # else suppressing it could not be seen
    if suppressed:
        logits[EOS] = -torch.inf
    probs = logits.softmax(-1).numpy()
    # A text that ends at once has no ids.
    counts = np.bincount([row.ids[0] if row.ids else EOS for row in rows], minlength=37)
    often = probs * draws >= 5  # the usual limit of the chi-square approximation; the rest is one cell
    observed = np.append(counts[often], counts[~often].sum())
    expected = np.append(probs[often], probs[~often].sum()) * draws
    assert often.sum() > 10
    assert chisquare(observed, expected).pvalue > 0.001
    if suppressed:
        assert counts[EOS] == 0


def test_the_tree_draws_the_given_masses_and_never_a_zero() -> None:
    masses = torch.tensor([[0.0, 0.5, 0.0, 0.25, 0.25]], dtype=torch.float64).expand(20_000, 5)
    uniform = torch.from_numpy(np.random.default_rng(0).random((20_000, 3)))
    counts = np.bincount(descend(masses, uniform)[0].numpy(), minlength=5)
    assert counts[[0, 2]].tolist() == [0, 0]
    assert chisquare(counts[[1, 3, 4]], [10_000, 5_000, 5_000]).pvalue > 0.001
    corners = torch.tensor([[0.0] * 3, [np.nextafter(1, 0)] * 3], dtype=torch.float64)
    assert descend(masses[:2], corners)[0].tolist() == [1, 4]


def test_the_models_own_generation_settings_do_not_act() -> None:
    model = tiny("gpt2")
    sampling = decoding(length=10, samples=4)
    expected = sample_continuations(model, PROMPTS, prompt_keys=KEYS, decoding=sampling)
    own = GenerationConfig(
        do_sample=True,
        top_k=2,
        temperature=0.7,
        top_p=0.5,
        repetition_penalty=3.0,
        no_repeat_ngram_size=1,
        suppress_tokens=[1, 2, 4, 5, 6],
        max_length=4,
        eos_token_id=EOS,
        num_return_sequences=2,
    )
    model.generation_config = own
    assert sample_continuations(model, PROMPTS, prompt_keys=KEYS, decoding=sampling) == expected
    assert model.generation_config is own


def test_a_text_ends_at_eos_only_where_it_may() -> None:
    model = tiny("gpt2")
    keys = [f"k{i}" for i in range(40)]
    prompts = [PROMPTS[i % len(PROMPTS)] for i in range(40)]

    def drawn(**rule: Any) -> list[Any]:
        found = sample_continuations(model, prompts, prompt_keys=keys, decoding=decoding(**rule))
        return [row[0] for row in found]

    never, free = drawn(length=12), drawn(length=12, suppress_eos=False)
    last = drawn(length=4, extra_tokens=8)  # official code: EOS is allowed after the full length
    for rows in (never, free, last):
        assert all(EOS not in row.ids for row in rows)
    assert all(len(row.ids) == 12 and not row.ended for row in never)
    assert {len(row.ids) for row in free if not row.ended} == {12}
    assert min(len(row.ids) for row in free if row.ended) < 4
    assert min(len(row.ids) for row in last) >= 4
    assert any(row.ended and len(row.ids) < 12 for row in last)


def test_what_cannot_be_sampled_is_refused() -> None:
    model = tiny("gpt2")
    with pytest.raises(ModelError, match=r"A prompt of 60 tokens and 6 new ones, .*: 65 positions, .* has 64"):
        sample_continuations(model, [[5] * 60], prompt_keys=["k"], decoding=decoding(length=6))
    with pytest.raises(ModelError, match="Prompt 1 has no token"):
        sample_continuations(model, [[5], []], prompt_keys=["a", "b"], decoding=decoding(length=5))
    with pytest.raises(ConfigError, match="at least 1"):
        decoding(length=0)
    torch.nn.init.constant_(model.transformer.ln_f.weight, float("nan"))
    for method in ("sample", "greedy", "beam"):
        with pytest.raises(MetricError, match="not finite"):
            sample_continuations(model, [[5]], prompt_keys=["k"], decoding=decoding(length=2, method=method))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@pytest.mark.parametrize("rule", [{"samples": 2}, {"method": "greedy"}, {"method": "beam"}])
def test_a_text_fills_the_models_last_position(kind: str, rule: dict[str, Any]) -> None:
    model = tiny(kind)
    assert model.config.max_position_embeddings == 64
    (rows,) = sample_continuations(model, [[5] * 60], prompt_keys=["k"], decoding=decoding(length=5, **rule))
    assert [len(row.ids) for row in rows] == [5] * rule.get("samples", 1)


def test_progress_modes_and_eos_ids() -> None:
    model = tiny("gpt2").train()
    seen: list[tuple[int, int]] = []
    sampling = decoding(length=2)
    sample_continuations(
        model, PROMPTS, prompt_keys=KEYS, decoding=sampling, progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1] == (8, 8)
    assert model.training
    assert eos_ids(model) == (EOS,)
    model.generation_config.eos_token_id = [4, 5]
    assert eos_ids(model) == (4, 5)


def test_a_real_model_gives_the_same_texts_in_batches_of_one_and_of_many(real_model: Path, wikitext: list[str]) -> None:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(real_model), AutoTokenizer.from_pretrained(real_model)
    prompts = [
        ids[: 5 + i] for i, ids in enumerate(tokenizer(wikitext[1:90:8], verbose=False)["input_ids"]) if len(ids) > 30
    ]
    keys = [str(i) for i in range(len(prompts))]
    one = sample_continuations(model, prompts, prompt_keys=keys, decoding=decoding(length=20, token_budget=1))
    many = sample_continuations(model, prompts, prompt_keys=keys, decoding=decoding(length=20))
    assert len(prompts) >= 5
    assert one == many
