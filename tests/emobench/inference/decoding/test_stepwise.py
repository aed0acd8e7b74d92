"""Steps of our own for prompts of one length: the texts are those of transformers' `generate`."""

from __future__ import annotations

import random
import sys
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import FalconConfig, FalconForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from emobench.inference.decoding import ancestral, attention, attention_kernel, batched
from emobench.inference.decoding.attention import attend, one_query_attention
from emobench.inference.decoding.attention_kernel import attend_once, fits
from emobench.inference.decoding.continuations import sample_continuations, token_budget
from emobench.inference.decoding.draw_kernel import draw_scores
from emobench.inference.decoding.request import Continuation, Decoding, Sampling
from emobench.inference.decoding.shared_cache import repeat_cache

sys.path.insert(0, str(Path(__file__).parents[1] / "scoring"))  # the package of tests has no __init__.py

from tiny_models import EOS, VOCABULARY, tiny_model  # type: ignore[import-not-found]

_draw = random.Random(3)
PROMPTS = [_draw.choices(range(2, VOCABULARY), k=7) for _ in range(9)]
LENGTH = 24
NAMES = ["gpt2", "llama", "opt", "bloom", "mistral, short window", "gpt-neo, local", "mamba", "falcon-h1"]


def decoded(model: Any, **rule: Any) -> list[list[Continuation]]:
    decoding = Decoding(rule=Sampling(**rule), length=LENGTH, token_budget=10_000)
    return sample_continuations(model, PROMPTS, prompt_keys=list("abcdefghi"), decoding=decoding)


def with_generate(model: Any, monkeypatch: pytest.MonkeyPatch, **rule: Any) -> list[list[Continuation]]:
    with monkeypatch.context() as patch:
        patch.setattr(batched, "can_step", lambda _: False)
        return decoded(model, **rule)


def with_many_ends(name: str) -> Any:
    model = tiny_model(name)
    model.generation_config.eos_token_id = [EOS, *range(5, VOCABULARY, 12)]
    return model


@pytest.mark.parametrize("rule", [{"samples": 3}, {"samples": 3, "suppress_eos": False}, {"method": "greedy"}], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_the_texts_are_those_of_generate(name: str, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, steps = with_many_ends(name), []
    decode_steps = batched.decode_steps
    monkeypatch.setattr(batched, "decode_steps", lambda *args: steps.append(1) or decode_steps(*args))
    assert decoded(model, **rule) == with_generate(model, monkeypatch, **rule)
    assert bool(steps) == (name not in ("mamba", "falcon-h1"))


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_attention_by_products_gives_the_logits_of_sdpa(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, products = tiny_model(name), []
    plain_bmm = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda *args: products.append(1) or plain_bmm(*args))
    found = {}
    for own in (False, True):
        with torch.no_grad(), one_query_attention(model) if own else nullcontext():
            cache = model(input_ids=torch.tensor(PROMPTS), use_cache=True).past_key_values
            assert repeat_cache(cache, 3, 5)
            assert not products
            for step in range(5):
                ids_R1 = torch.arange(27)[:, None] + step
                found[own, step] = model(input_ids=ids_R1, past_key_values=cache, use_cache=True).logits
        assert len(products) == (2 * 5 * model.config.num_hidden_layers if own else 0)
    assert model.config._attn_implementation == "sdpa"
    for step in range(5):
        assert found[True, step] == pytest.approx(found[False, step], rel=1e-4, abs=1e-5)


def test_what_plain_products_do_not_have_is_left_to_sdpa() -> None:
    query_RHTD, key_RHTD = torch.randn(2, 6, 1, 8), torch.randn(2, 3, 5, 8)
    module = tiny_model("llama").model.layers[0].self_attn
    module.num_key_value_groups = 2
    bias, mask = torch.randn(1, 6, 1, 5), torch.tensor([True, True, False, True, True]).view(1, 1, 1, 5)
    for given in ({}, {"scaling": 0.3}, {"attention_mask": mask}, {"position_bias": bias}):
        arguments = {"attention_mask": None, **given}
        expected, _ = sdpa_attention_forward(module, query_RHTD, key_RHTD, key_RHTD, **arguments)
        assert attend(module, query_RHTD, key_RHTD, key_RHTD, **arguments)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("change", ["eager", "bfloat16", "indexer", "falcon"])
def test_other_models_keep_their_attention(change: str, caplog: pytest.LogCaptureFixture) -> None:
    model = tiny_model("llama")
    if change == "eager":
        model.set_attn_implementation("eager")
    elif change == "bfloat16":
        model.to(torch.bfloat16)
    elif change == "indexer":  # as in DeepSeek-V3.2
        model.model.layers[0].self_attn.indexer = torch.nn.Identity()
    else:
        sizes: Any = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": VOCABULARY}
        model = FalconForCausalLM(FalconConfig(**sizes, eos_token_id=EOS, bos_token_id=EOS)).eval()
    before = model.config._attn_implementation
    assert (before == "eager") == (change == "eager")
    with one_query_attention(model):
        assert model.config._attn_implementation == before
    assert not caplog.records
    if change == "falcon":
        assert len(decoded(model, method="greedy")) == len(PROMPTS)


def test_rows_that_have_ended_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ancestral, "NEAR", 0.0)
    model, read = with_many_ends("llama"), []
    model.get_input_embeddings().register_forward_hook(lambda _, ids, __: read.append(len(ids[0])))
    rows = [row for rows in decoded(model, samples=4, suppress_eos=False) for row in rows]
    tokens = sum(len(row.ids) for row in rows)
    assert sum(row.ended for row in rows) > 20
    assert read[1] == 4 * len(PROMPTS)
    assert sorted(read[1:], reverse=True) == read[1:]
    assert tokens < sum(read[1:]) < 1.4 * tokens


@pytest.mark.parametrize("name", ["gpt2", "llama", "opt", "bloom", "gpt-neox", "mixtral", "gpt-neo, local"])
def test_a_cache_of_a_fixed_shape_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CUDA."""
    model = with_many_ends(name)
    expected = decoded(model, samples=3, suppress_eos=False)
    repeat_cache, layers = batched.repeat_cache, set[str]()

    def repeat(cache: Any, samples: int, room: int, **_: Any) -> bool:
        found = repeat_cache(cache, samples, room, fixed=batched.takes_fixed_layers(model))
        layers.update(type(layer).__name__ for layer in cache.layers)
        return found

    monkeypatch.setattr(batched, "repeat_cache", repeat)
    assert decoded(model, samples=3, suppress_eos=False) == expected
    assert ("FixedLayer" in layers) == (name not in ("gpt-neo, local", "bloom", "opt"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("vocabulary", [2, 129, 1000, 5001])
def test_the_kernels_draw_as_torch_does(vocabulary: int, dtype: torch.dtype) -> None:
    """Compiled where there is a GPU, else in Triton's interpreter."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores_RV = torch.randn(8, vocabulary, generator=torch.Generator().manual_seed(0)).mul(3).to(dtype)
    scores_RV[:, 1::3] = -torch.inf
    levels = ancestral.levels_of(vocabulary)
    uniform_RL = torch.from_numpy(np.random.default_rng(0).random((8, levels)))
    bits = min(ancestral.BLOCK_BITS, levels)
    ids_R, margin_R, finite = draw_scores(scores_RV.to(device), uniform_RL.to(device), bits)
    expected = ancestral.draw(scores_RV.float(), uniform_RL)
    assert ids_R.tolist() == expected.ids_R.tolist()
    torch.testing.assert_close(margin_R.cpu(), expected.margin_R, rtol=1e-4, atol=1e-5)
    assert bool(finite)
    assert bool(expected.finite)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:(invalid value|All-NaN slice) encountered:RuntimeWarning")  # of the interpreter
@pytest.mark.parametrize("score", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", [0, slice(None)], ids=str)
def test_scores_that_give_no_masses_are_seen(score: float, where: Any) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    scores_RV, uniform_RL = torch.zeros(3, 200), torch.zeros(3, 8, dtype=torch.float64)
    scores_RV[1, where] = score
    *_, finite = draw_scores(scores_RV.to(device), uniform_RL.to(device), 7)
    assert bool(finite) == (score == -torch.inf and where == 0)
    assert bool(finite) == bool(ancestral.draw(scores_RV, uniform_RL).finite)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("group", "width", "value_width"), [(1, 64, 64), (3, 80, 80), (4, 24, 16), (8, 128, 128)])
def test_attention_by_a_kernel_is_that_of_torch(group: int, width: int, value_width: int, dtype: torch.dtype) -> None:
    """Compiled where there is a GPU, else in Triton's interpreter, whose products of bfloat16 are wrong."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and dtype == torch.bfloat16:
        pytest.skip("needs a CUDA device")
    rows, heads, positions = 3, 2, 150
    query_RHD = torch.randn(rows, heads * group, width, dtype=dtype, device=device)
    key_RHTD = torch.randn(positions, rows, heads, width, dtype=dtype, device=device).permute(1, 2, 0, 3)
    value_RHTE = torch.randn(rows, heads, positions, value_width, dtype=dtype, device=device)
    seen_RT = torch.rand(rows, positions, device=device) < 0.5
    seen_RT[0, :149], seen_RT[0, 149], seen_RT[1, 1:], seen_RT[1, 0] = False, True, False, True
    exact = [states.double() for states in (query_RHD[:, :, None], key_RHTD, value_RHTE)]
    for seen in (None, seen_RT, seen_RT[2:]):
        found = attend_once(query_RHD, key_RHTD, value_RHTE, seen, scaling=0.2)
        mask = None if seen is None else seen[:, None, None]
        expected = scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.2, enable_gqa=True)[:, :, 0]
        close = 1e-5 if dtype == torch.float32 else 2e-3 if dtype == torch.float16 else 2e-2
        torch.testing.assert_close(found.double(), expected, rtol=close, atol=close)


@pytest.mark.parametrize(("dtype", "group", "width", "expected"), [
    (torch.bfloat16, 8, 256, True),
    (torch.bfloat16, 1, 512, False),
    (torch.float32, 8, 128, True),
    (torch.float32, 8, 256, False),
    (torch.float64, 1, 64, False),
])  # fmt: skip
def test_what_a_program_cannot_hold_is_left_to_torch(
    dtype: torch.dtype, group: int, width: int, expected: bool
) -> None:
    query, states = torch.empty(1, 2 * group, 1, width, dtype=dtype), torch.empty(1, 2, 5, width, dtype=dtype)
    assert fits(query, states, states) == expected


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "fixed"), [("gpt2", True), ("llama", False), ("mistral, short window", True), ("gpt-neox", False)]
)
def test_attention_by_a_kernel_gives_the_logits_of_sdpa(
    name: str, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled where there is a GPU, else in Triton's interpreter."""
    device, calls = "cuda" if torch.cuda.is_available() else "cpu", []
    monkeypatch.setattr(attention, "has_kernel", lambda _: True)
    monkeypatch.setattr(attention_kernel, "attend_once", lambda *given: calls.append(1) or attend_once(*given))
    model, found = tiny_model(name).to(device), {}
    for own in (False, True):
        with torch.no_grad(), one_query_attention(model) if own else nullcontext():
            cache = model(input_ids=torch.tensor(PROMPTS[:3], device=device), use_cache=True).past_key_values
            assert repeat_cache(cache, 2, 3, fixed=fixed)
            for step in range(3):
                ids_R1 = torch.arange(6, device=device)[:, None] + step
                found[own, step] = model(input_ids=ids_R1, past_key_values=cache, use_cache=True).logits
        assert len(calls) == (3 * model.config.num_hidden_layers if own else 0)
    for step in range(3):
        torch.testing.assert_close(found[True, step], found[False, step], rtol=1e-3, atol=1e-4)


def test_a_batch_is_what_fits_the_device() -> None:
    model = tiny_model("llama")
    assert token_budget(model, memory=None) == 16_384
    assert token_budget(model, memory=1) == 16_384
    config = model.config
    a_token = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    assert token_budget(model, memory=100_000 * a_token) == pytest.approx(50_000, rel=0.2)
    assert token_budget(model, memory=2**40) == 131_072
    assert token_budget(tiny_model("mamba"), memory=2**40) == 16_384  # it keeps no keys and values


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("error:The model's step is read without")
@pytest.mark.parametrize("name", ["gpt2", "llama", "gpt-neox"])
def test_a_graph_of_a_step_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, replays = with_many_ends(name).cuda(), list[int]()
    replay = torch.cuda.CUDAGraph.replay
    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", lambda graph: (replays.append(1), replay(graph)))
    found = decoded(model, samples=3)
    assert replays
    monkeypatch.setattr(batched.GraphStep, "is_possible", staticmethod(lambda *_: False))
    assert decoded(model, samples=3) == found


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("seen_before", [True, False])
def test_what_no_graph_can_hold_is_read_without_one(seen_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the first steps show that it waits for the device, or the recording itself fails."""
    model = with_many_ends("gpt2").cuda()
    expected = decoded(model, samples=3)
    if not seen_before:
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", lambda mode: None)
    hook = model.register_forward_pre_hook(lambda *_: print(torch.ones(1, device="cuda")))
    with pytest.warns(UserWarning, match="read without a CUDA graph"):
        assert decoded(model, samples=3) == expected
    hook.remove()
    torch.cuda.empty_cache()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decoded(model, samples=3) == expected
