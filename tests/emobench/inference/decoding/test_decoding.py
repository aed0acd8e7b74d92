"""Decoding: each option against transformers' own, tokens that are forwarded, and texts that no batch size changes."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    GenerationConfig,
    MinPLogitsWarper,
    RwkvConfig,
    RwkvForCausalLM,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from emobench.inference.decoding import ancestral as tree
from emobench.inference.decoding.continuations import sample_continuations
from emobench.inference.decoding.request import Continuation, Decoding, Sampling

sys.path.insert(0, str(Path(__file__).parents[1] / "scoring"))  # the package of tests has no __init__.py

from tiny_models import EOS, VOCABULARY, tiny_model  # type: ignore[import-not-found]

_draw = random.Random(0)
PROMPTS = [_draw.choices(range(2, VOCABULARY), k=_draw.randint(1, 20)) for _ in range(9)]
KEYS = [f"prompt-{i}" for i in range(len(PROMPTS))]
LENGTH = 10


def decoded(model: Any, *, token_budget: int = 16384, prompts: Any = PROMPTS, **rule: Any) -> list[list[Continuation]]:
    decoding = Decoding(rule=Sampling(**rule), length=LENGTH, token_budget=token_budget)
    return sample_continuations(model, prompts, prompt_keys=KEYS[: len(prompts)], decoding=decoding)


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "bloom", "mistral, short window", "gpt-neo, local", "mamba"])
def test_samples_that_share_a_prefix_are_those_of_rows_of_their_own(name: str) -> None:
    model = tiny_model(name)
    shared = decoded(model, samples=3, suppress_eos=False)
    assert [row[:1] for row in shared] == decoded(model, suppress_eos=False, token_budget=1)
    assert len({tuple(c.ids) for row in shared for c in row}) > 2 * len(PROMPTS)


def test_a_state_that_is_a_list_of_tensors_is_read_by_each_row() -> None:
    sizes: Any = {"hidden_size": 32, "attention_hidden_size": 32, "num_hidden_layers": 2, "context_length": 64}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = RwkvForCausalLM(RwkvConfig(vocab_size=VOCABULARY, eos_token_id=EOS, **sizes)).eval()
    prompts = [ids[:3] for ids in PROMPTS if len(ids) >= 3]  # of one length: RWKV takes no attention mask
    found = decoded(model, samples=3, prompts=prompts)
    assert [row[:1] for row in found] == decoded(model, prompts=prompts, token_budget=1)
    assert len(prompts) > 3
    assert all(len(row.ids) == LENGTH for rows in found for row in rows)


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt"])
def test_no_prefix_token_is_forwarded_twice(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "NEAR", 0.0)  # rows of near ties are read again
    model, forwarded = tiny_model(name), []
    model.get_input_embeddings().register_forward_hook(lambda _, ids, __: forwarded.append(ids[0].numel()))
    prompts = [[5] * 7, [6] * 7, [7] * 7]  # one length: no padding is counted
    decoded(model, prompts=prompts, samples=4)
    assert sum(forwarded) == 3 * (7 + 4 * (LENGTH - 1))  # the last new token is never read


def by_hand(model: Any, prompt: list[int], new_tokens: int, *warpers: Any) -> list[set[int]]:
    """Return, for each position after the prompt, the tokens that transformers' own processors leave."""
    with torch.no_grad():
        scores = model(torch.tensor([prompt])).logits[0, -new_tokens - 1 : -1].float()
    scores[:, EOS] = -torch.inf
    for warper in warpers:
        scores = warper(None, scores)
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in scores]


@pytest.mark.parametrize(
    ("rule", "warpers"),
    [
        ({"top_k": 3}, [TopKLogitsWarper(3)]),
        ({"top_p": 0.6}, [TopPLogitsWarper(0.6)]),
        ({"typical_p": 0.5}, [TypicalLogitsWarper(0.5)]),
        ({"min_p": 0.2}, [MinPLogitsWarper(0.2)]),
        ({"temperature": 0.6, "top_p": 0.7}, [TemperatureLogitsWarper(0.6), TopPLogitsWarper(0.7)]),
        (
            {"temperature": 1.5, "top_k": 20, "top_p": 0.8, "min_p": 0.05},
            [TemperatureLogitsWarper(1.5), TopKLogitsWarper(20), TopPLogitsWarper(0.8), MinPLogitsWarper(0.05)],
        ),
    ],
)
def test_truncated_sampling_draws_all_that_transformers_processors_leave_and_no_more(
    rule: dict[str, Any], warpers: list[Any]
) -> None:
    model = tiny_model("gpt2")
    for prompt, rows in zip(PROMPTS, decoded(model, samples=3, **rule), strict=True):
        for row in rows:
            left = by_hand(model, [*prompt, *row.ids], LENGTH, *warpers)
            assert all(token in tokens for token, tokens in zip(row.ids, left, strict=True))
    decoding = Decoding(rule=Sampling(samples=3000, **rule), length=1, token_budget=10**6)
    drawn = sample_continuations(model, PROMPTS[:1], prompt_keys=KEYS[:1], decoding=decoding)[0]
    expected = by_hand(model, [*PROMPTS[0], 2], 1, *warpers)[0]
    assert {row.ids[0] for row in drawn} <= expected
    assert len({row.ids[0] for row in drawn}) >= 0.9 * len(expected)
    assert len(expected) < 0.7 * VOCABULARY  # else nothing was cut


@pytest.mark.parametrize("method", ["greedy", "beam"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "opt"])
@pytest.mark.parametrize("suppress_eos", [False, True])
def test_greedy_and_beam_are_transformers_own(name: str, method: str, suppress_eos: bool) -> None:
    model = tiny_model(name)
    with torch.no_grad():  # EOS is likely, so that beams end
        model.get_output_embeddings().weight[EOS] = model.get_output_embeddings().weight[2:40].mean(0) * 2
    found = decoded(model, method=method, suppress_eos=suppress_eos, extra_tokens=1, beams=3)
    for prompt, row in zip(PROMPTS, found, strict=True):
        config = GenerationConfig(
            do_sample=False,
            num_beams=3 if method == "beam" else 1,
            max_new_tokens=LENGTH + 1,
            min_new_tokens=LENGTH if suppress_eos else None,
            eos_token_id=EOS,
            pad_token_id=EOS,
        )
        ids = torch.tensor([prompt])
        output = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)[0, len(prompt) :]
        tokens = output.tolist()
        end = tokens.index(EOS) if EOS in tokens else None
        assert row == [Continuation(tokens[:end], end is not None)]
        assert not suppress_eos or len(row[0].ids) >= LENGTH


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt"])
def test_a_row_that_is_read_alone_has_the_scores_of_its_batch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(name)
    rule: Any = {"samples": 3, "suppress_eos": False, "temperature": 0.9}
    expected = decoded(model, **rule)
    monkeypatch.setattr(tree, "NEAR", float("inf"))  # every tie is near
    assert decoded(model, **rule) == expected


def test_a_margin_is_how_far_log_odds_would_have_to_move() -> None:
    uniform_RL = torch.tensor([[0.30], [0.30], [0.0], [0.9]], dtype=torch.float64)
    share_R = torch.tensor([0.3001, 0.29999999, 1e-9, 1.0], dtype=torch.float64)
    ids_R, margin_R = tree.descend(torch.stack((share_R, 1 - share_R), 1), uniform_RL)
    assert ids_R.tolist() == [0, 1, 0, 0]
    wanted = [4.761e-4, 4.762e-8, 1.0, 1e299]  # where one half has no mass, nothing moves it
    torch.testing.assert_close(margin_R, torch.tensor(wanted, dtype=torch.float64), rtol=1e-3, atol=0)


def test_near_ties_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With noise of 3e-3 on the logits of batches, some thousand times that of float32, to see it at all."""
    model, noise = tiny_model("gpt2"), torch.Generator().manual_seed(0)

    def disturb(_: Any, __: Any, logits_BTV: torch.Tensor) -> torch.Tensor:
        shift_BTV = torch.randn(logits_BTV.shape, generator=noise) * 3e-3
        return logits_BTV + shift_BTV * (len(logits_BTV) > 1)

    model.get_output_embeddings().register_forward_hook(disturb)

    def texts(budget: int) -> list[list[Continuation]]:
        return decoded(model, token_budget=budget, samples=20)

    monkeypatch.setattr(tree, "NEAR", 0.0)
    assert texts(1) != texts(100_000)
    monkeypatch.setattr(tree, "NEAR", 0.05)
    assert texts(1) == texts(5_000) == texts(100_000)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["gpt2", "llama", "opt"])
def test_on_a_gpu(name: str) -> None:
    expected = decoded(tiny_model(name), samples=3, top_p=0.9)
    model = tiny_model(name).cuda()
    found = decoded(model, samples=3, top_p=0.9)
    pairs = [(a, b) for mine, theirs in zip(expected, found, strict=True) for a, b in zip(mine, theirs, strict=True)]
    assert sum(a == b for a, b in pairs) >= 0.9 * len(pairs)  # float32 there, too, but other sums
    assert decoded(model, samples=3, top_p=0.9, token_budget=1) == found
