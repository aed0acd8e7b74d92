"""Distances to a surrogate against whole logits in float64; the true P in its place; and what is held at most."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from emobench.core.errors import MetricError, ModelError
from emobench.data.oracle.language import oracle_language, oracle_texts, oracle_tokenizer
from emobench.kinds.oracle.evaluate import oracle_distances
from emobench.metrics.batching import reading
from emobench.metrics.distances import COLUMNS, DISTANCES
from emobench.metrics.distribution_distances import (
    CHUNK_BYTES,
    TOKEN_BUDGET,
    _log_probs,
    compare,
    distances,
    of_model,
    surrogate_distances,
)
from emobench.models.head import probe_head
from emobench.tasks.scores import SECONDARY, Score

TOKENS = 37


class Tokenizer:
    """What is asked of a tokenizer: its tokens."""

    def get_vocab(self) -> dict[str, int]:
        return {f"t{i}": i for i in range(TOKENS)}


def gpt2(rows: int, seed: int) -> Any:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "initializer_range": 0.3}
    return GPT2LMHeadModel(GPT2Config(vocab_size=rows, **sizes)).eval()


SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES["initializer_range"] = 0.3


def llama(rows: int, seed: int) -> Any:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(vocab_size=rows, **SIZES)).eval()


def capped(rows: int, seed: int) -> Any:
    """A model whose logits are capped: its raw ones are others."""
    torch.manual_seed(seed)
    heads = {"num_key_value_heads": 2, "head_dim": 16, "final_logit_softcapping": 2.0}
    return Gemma2ForCausalLM(Gemma2Config(vocab_size=rows, **SIZES, **heads)).eval()


def rows_of(count: int, longest: int) -> list[list[int]]:
    generator = np.random.default_rng(0)
    return [generator.integers(TOKENS, size=generator.integers(2, longest + 1)).tolist() for _ in range(count)]


def by_whole_logits(surrogate: Any, model: Any, rows: list[list[int]], tokens: int) -> np.ndarray:
    """Each text's mean of each column, by both models' logits of one text at a time, all in float64."""
    wide = [copy.deepcopy(one).double() for one in (surrogate, model)]
    found = []
    for ids in rows:
        with torch.no_grad():
            logits = [one(torch.tensor([ids])).logits[0, :-1, :tokens] for one in wide]
        p, q = (torch.softmax(logit, -1).numpy() for logit in logits)
        log_p, log_q = np.log(p), np.log(q)
        columns = [
            -(p * log_q).sum(-1),
            -(q * log_p).sum(-1),
            (p * (log_p - log_q)).sum(-1),
            (q * (log_q - log_p)).sum(-1),
            np.abs(p - q).sum(-1) / 2,
            -(q * log_q).sum(-1),
            -(p * log_p).sum(-1),
        ]
        found.append([column.mean() for column in columns])
    return np.array(found)


def check(scores: dict[str, Score], expected_XS: np.ndarray, ids: list[str]) -> None:
    assert tuple(scores) == COLUMNS
    primary = [name for name, score in scores.items() if SECONDARY not in score.flags]
    assert primary == ["forward_cross_entropy", "reverse_cross_entropy"]
    assert {name for name, score in scores.items() if score.higher_is_better is None} == {"entropy", "target_entropy"}
    for i, name in enumerate(COLUMNS):
        examples = scores[name].examples
        assert list(examples) == ids
        np.testing.assert_allclose([v for v, _ in examples.values()], expected_XS[:, i], rtol=0, atol=1e-5)
        assert {weight for _, weight in examples.values()} == {1.0}
        # Over texts, not over tokens.
        assert scores[name].value == pytest.approx(expected_XS[:, i].mean(), abs=1e-5)


@pytest.mark.parametrize(("token_budget", "chunk_bytes"), [(1, 1), (40, 8 * TOKENS * 5), (TOKEN_BUDGET, CHUNK_BYTES)])
@pytest.mark.parametrize("pair", [(gpt2, 37, llama, 37), (gpt2, 40, gpt2, 37), (llama, 37, capped, 64)])
def test_distances_equal_whole_logits_in_float64(pair: Any, token_budget: int, chunk_bytes: int) -> None:
    make_p, rows_p, make_q, rows_q = pair
    surrogate, model = make_p(rows_p, 0), make_q(rows_q, 1)
    rows = rows_of(9, 24)
    ids = [f"text-{i}" for i in range(9)]
    seen: list[tuple[int, int]] = []
    scores = surrogate_distances(
        surrogate,
        model,
        Tokenizer(),
        rows,
        ids,
        token_budget=token_budget,
        chunk_bytes=chunk_bytes,
        progress=lambda *at: seen.append(at),
    )
    expected_XS = by_whole_logits(surrogate, model, rows, TOKENS)
    check(scores, expected_XS, ids)
    assert expected_XS[:, :6].min() > 0.1  # P and Q differ plainly, in every column
    assert seen[-1] == (9, 9)
    weights = [len(row) - 1 for row in rows]
    assert abs(np.average(expected_XS[:, 0], weights=weights) - expected_XS[:, 0].mean()) > 1e-3


def test_half_precision_products_are_not_rounded() -> None:
    """A logit that is rounded to bfloat16 is off by up to 0.4 %: distances would be off by hundredths."""
    surrogate, model = gpt2(37, 0).bfloat16(), gpt2(37, 1).bfloat16()
    hidden_CD = torch.randn(4, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    rows = rows_of(3, 10)
    with torch.no_grad():
        heads = [probe_head(one) for one in (surrogate, model)]
        found_CV = _log_probs(heads[0], hidden_CD)
        exact_CV = (hidden_CD.double() @ heads[0].linear.weight.double().T).log_softmax(-1)
    torch.testing.assert_close(found_CV, exact_CV, rtol=1e-5, atol=1e-5)
    scores = surrogate_distances(surrogate, model, Tokenizer(), rows, ["a", "b", "c"])
    assert scores["forward_kl"].value > 0.1


def test_the_true_p_in_place_of_a_surrogate_agrees_with_the_exact_distances() -> None:
    """The oracle language's P by its forward algorithm over whole texts, and Q by whole logits."""
    language, tokenizer = oracle_language("target"), oracle_tokenizer()
    texts = tokenizer(oracle_texts("target", "test")[:12])["input_ids"]
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "initializer_range": 0.2}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes)).double().eval()
    rows = [[language.eos_id, *text][:64] for text in texts]
    exact = oracle_distances(model, language, texts)

    def true_p(ids_BT: torch.Tensor, inside_BT: torch.Tensor) -> Any:
        p_BTV = language.state_probs(ids_BT.numpy()) @ language.emission_SV
        return torch.from_numpy(np.log(p_BTV))[inside_BT].__getitem__

    with reading(model):
        means_XS = compare(
            true_p,
            of_model(model, probe_head(model)),
            rows,
            [len(row) for row in rows],
            vocabulary=len(tokenizer),
            token_budget=100,
            chunk_bytes=8 * 513 * 7,
        )
    for x, row in enumerate(rows):
        p_TV = language.state_probs(np.array([row]))[0] @ language.emission_SV
        log_p_TV = torch.from_numpy(np.log(p_TV))
        with torch.no_grad():
            log_q_TV = model(torch.tensor([row])).logits[0].log_softmax(-1)
        whole_S = distances(log_p_TV, log_q_TV).mean(0)
        np.testing.assert_allclose(means_XS[x], whole_S, rtol=1e-10)
        for i, name in enumerate(DISTANCES):
            examples = exact[name].examples
            assert examples[str(x)] == pytest.approx((means_XS[x, i], len(row)), rel=1e-10)


class Largest(TorchDispatchMode):
    """Notes the largest tensor, in bytes, that an operation gave, other than a view of the weights."""

    def __init__(self, but: set[int]) -> None:
        super().__init__()
        self.but, self.bytes = but, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        for one in found if isinstance(found, (tuple, list)) else (found,):
            if isinstance(one, torch.Tensor) and one.untyped_storage().data_ptr() not in self.but:
                self.bytes = max(self.bytes, one.numel() * one.element_size())
        return found


def test_no_tensor_exceeds_a_chunk_at_the_vocabulary_of_gpt2() -> None:
    """498 positions, whose two tables of log probabilities would take 400 MB. Peak memory: benchmarks/surrogate.py."""
    vocabulary = 50_257

    def tiny(seed: int) -> Any:
        torch.manual_seed(seed)
        return GPT2LMHeadModel(GPT2Config(vocab_size=vocabulary, n_embd=8, n_layer=1, n_head=1, n_positions=512)).eval()

    models = [tiny(0), tiny(1)]
    rows = [[i % vocabulary for i in range(7 * n, 7 * n + 250)] for n in range(2)]
    heads = [probe_head(one) for one in models]
    with reading(models[0]), reading(models[1]):
        largest = Largest({p.untyped_storage().data_ptr() for one in models for p in one.parameters()})
        with largest:
            compare(of_model(models[0], heads[0]), of_model(models[1], heads[1]), rows, [249] * 2, vocabulary=50_257)
    assert CHUNK_BYTES - 8 * vocabulary <= largest.bytes <= CHUNK_BYTES


def test_what_cannot_be_computed_is_an_error() -> None:
    surrogate, model = gpt2(37, 0), gpt2(37, 1)
    with pytest.raises(ModelError, match="33 positions, but GPT2LMHeadModel has 32"):
        surrogate_distances(surrogate, model, Tokenizer(), [[1] * 33], ["a"])
    infinite = torch.full((1, 5), -torch.inf, dtype=torch.float64)
    with pytest.raises(MetricError, match="not finite"):
        compare(lambda *_: lambda _: infinite, lambda *_: lambda _: infinite, [[1]], [1], vocabulary=5)
