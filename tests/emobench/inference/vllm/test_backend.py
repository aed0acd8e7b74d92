"""vLLM itself, on a CPU: the default backend's distribution, by random numbers of its own. One engine for all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM, AutoTokenizer

from emobench.core.errors import ModelError
from emobench.inference.decoding.ancestral import Allowed
from emobench.inference.decoding.batched import warpers
from emobench.inference.decoding.continuations import iter_continuations, sample_continuations
from emobench.inference.decoding.request import Continuation, Decoding, Sampling
from emobench.inference.vllm import engine as backend
from emobench.inference.vllm.engine import Engine, running_engine
from emobench.inference.vllm.package import CPU_PACKAGE, installed_package
from emobench.models.device import LoadOptions
from emobench.models.model import Model

pytestmark = [
    pytest.mark.skipif(installed_package() != CPU_PACKAGE, reason=f"needs the package {CPU_PACKAGE}"),
    pytest.mark.slow,
]
VOCABULARY = 4096
"""Half of the head's rows stand for padding here."""
LONGEST = 64


@pytest.fixture(scope="module")
def files(real_model: Path) -> Model:
    return Model(str(real_model), LoadOptions(device="cpu"))


@pytest.fixture(scope="module")
def engine(files: Model) -> Iterator[Engine]:
    with running_engine(backend.engine_settings(files, LONGEST, VOCABULARY), files.name) as running:
        yield running


@pytest.fixture(autouse=True)
def one_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def running(settings: dict[str, Any], name: str) -> Iterator[Engine]:
        assert settings["max_model_len"] <= LONGEST
        yield engine

    monkeypatch.setattr(backend, "running_engine", running)


@pytest.fixture(scope="module")
def model(real_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(real_model, dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def prompts(real_model: Path, wikitext: list[str]) -> list[list[int]]:
    """64 beginnings of texts, of 8 to 20 tokens."""
    tokenizer = AutoTokenizer.from_pretrained(real_model)
    texts = [text for text in wikitext[:2000] if len(text) > 200][:64]
    return [[i for i in tokenizer(text).input_ids if i < VOCABULARY][: 8 + n % 13] for n, text in enumerate(texts)]


@pytest.fixture
def generated(files: Model) -> Callable[..., list[list[Continuation]]]:
    def generate(
        prompts: list[list[int]], keys: list[str], decoding: Decoding, ends: tuple[int, ...] = ()
    ) -> list[list[Continuation]]:
        given = {"prompt_keys": keys, "decoding": decoding, "vocabulary": VOCABULARY, "ends": ends}
        return sample_continuations(files, prompts, **given)

    return generate


Generate = Callable[..., list[list[Continuation]]]


def keys_of(prompts: list[list[int]]) -> list[str]:
    return [f"prompt-{place}" for place in range(len(prompts))]


def logits_of(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[:, -1].float()


def test_greedy_texts_are_those_of_the_default_backend(
    generated: Generate, model: Any, prompts: list[list[int]]
) -> None:
    decoding = Decoding(rule=Sampling(method="greedy", backend="vllm"), length=40)
    ours = Decoding(rule=Sampling(method="greedy"), length=40)
    expected = sample_continuations(model, prompts, prompt_keys=keys_of(prompts), decoding=ours, vocabulary=VOCABULARY)
    found = generated(prompts, keys_of(prompts), decoding)
    tied = 0
    for prompt, [mine], [theirs] in zip(prompts, expected, found, strict=True):
        place = next((i for i, (a, b) in enumerate(zip(mine.ids, theirs.ids, strict=True)) if a != b), None)
        if place is not None:
            logits_V = logits_of(model, prompt + mine.ids[:place])[0]
            assert abs(logits_V[mine.ids[place]] - logits_V[theirs.ids[place]]) < 1e-3
            tied += 1
    print(f"{len(found) - tied} of {len(found)} greedy texts are equal, {tied} part at a near tie")
    assert tied <= 1


RULES: dict[str, dict[str, Any]] = {
    "plain": {},
    "hot": {"temperature": 1.5},
    "top-k and top-p": {"temperature": 0.8, "top_k": 50, "top_p": 0.9},
    "min-p": {"min_p": 0.02, "top_k": 200},
    "EOS allowed": {"suppress_eos": False},
}


@pytest.mark.parametrize("name", RULES)
def test_the_first_token_has_the_exact_distribution(
    generated: Generate, model: Any, prompts: list[list[int]], name: str
) -> None:
    """Ids that end a text, here the five most probable ones, and padding have no mass where the rules say so."""
    prompt, draws = prompts[3], 4096
    logits_1V = logits_of(model, prompt)
    ends = tuple(logits_1V[0, :VOCABULARY].topk(5).indices.tolist())
    rule = Sampling(samples=draws, seed=7, backend="vllm", **RULES[name])
    decoding = Decoding(rule=rule, length=1)
    ids_1T = torch.tensor([prompt])
    scores_1V = Allowed(len(prompt), (0, *ends), decoding.suppressed_steps, VOCABULARY)(ids_1T, logits_1V)
    for warper in warpers(rule):
        scores_1V = warper(ids_1T, scores_1V)
    exact_V = scores_1V.double().softmax(-1)[0].numpy()

    [found] = generated([prompt], ["one"], decoding, ends)
    # Texts that ended do not say by which id, so that those are one cell.
    cells_V = np.arange(len(exact_V))
    cells_V[[0, *ends]] = 0
    exact_V = np.bincount(cells_V, exact_V, len(exact_V))
    counts_V = np.bincount([one.ids[0] if one.ids else 0 for one in found], minlength=len(exact_V))
    assert counts_V.sum() == draws
    assert counts_V[exact_V == 0].sum() == 0
    often = exact_V * draws >= 5
    observed = np.append(counts_V[often], counts_V[~often].sum())
    expected = np.append(exact_V[often], exact_V[~often].sum()) * draws
    if expected[-1] == 0:
        observed, expected = observed[:-1], expected[:-1]
    p = chisquare(observed, expected * draws / expected.sum()).pvalue
    print(f"{name}: {len(expected)} cells, p = {p:.3f}")
    assert p > 1e-3


def test_a_text_has_its_own_seed(generated: Generate, prompts: list[list[int]]) -> None:
    decoding, keys = Decoding(rule=Sampling(samples=2, seed=1, backend="vllm"), length=24), keys_of(prompts)
    once = generated(prompts, keys, decoding)
    again = generated(prompts[::-1][:40], keys[::-1][:40], decoding)
    assert again == once[::-1][:40]
    assert all(first.ids != second.ids for first, second in once)
    other = generated(prompts[:8], keys[:8], Decoding(rule=Sampling(samples=2, seed=2, backend="vllm"), length=24))
    assert all(a != b for a, b in zip(other, once, strict=False))


def test_a_text_ends_where_the_rules_allow_it(generated: Generate, model: Any, prompts: list[list[int]]) -> None:
    ends = tuple(logits_of(model, prompts[0])[0, :VOCABULARY].topk(40).indices.tolist())
    keys = keys_of(prompts)

    def texts(**rule: Any) -> list[Continuation]:
        decoding = Decoding(rule=Sampling(samples=4, backend="vllm", **rule), length=12)
        return [one for found in generated(prompts, keys, decoding, ends) for one in found]

    free = texts(suppress_eos=False)
    assert {True, False} == {one.ended for one in free}
    assert all(one.ended == (len(one.ids) < 12) for one in free)
    late = texts(extra_tokens=1)
    assert {(12, True), (13, False)} == {(len(one.ids), one.ended) for one in late}
    never = texts()
    assert {(12, False)} == {(len(one.ids), one.ended) for one in never}
    for one in [*free, *late, *never]:
        assert not {0, *ends}.intersection(one.ids)
        assert max(one.ids, default=0) < VOCABULARY


def test_batches_that_are_done_are_left_out(
    files: Model, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding, keys = Decoding(rule=Sampling(samples=2, backend="vllm"), length=4), keys_of(prompts)
    monkeypatch.setattr(backend, "ROWS", 40)  # batches of 20 prompts

    def indices(done: set[int]) -> list[list[int]]:
        batches = iter_continuations(
            files, prompts, prompt_keys=keys, decoding=decoding, vocabulary=VOCABULARY, done=done
        )
        return [[index for index, _ in batch] for batch in batches]

    assert indices({*range(20), *range(41, 60)}) == [[*range(20, 40)], [*range(40, 60)], [*range(60, 64)]]


def test_what_vllm_refuses_is_an_error_that_names_the_model(engine: Engine) -> None:
    """The last test: the engine is gone after it."""
    with pytest.raises(ModelError, match=r"vLLM cannot generate with base-en-7m \(.*temperature"):
        engine.generate({"temperature": 5.0}, [([5, 6], None)])
    with pytest.raises(ModelError, match="its process ended with code 1"):
        engine.generate({"temperature": 1.0}, [([5, 6], None)])
