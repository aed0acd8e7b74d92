"""Losses of prompts: every engine against whole logits, the choice of an engine, counts, batches."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from emobench.core.errors import ModelError
from emobench.inference.scoring import scorer as module
from emobench.inference.scoring.scorer import Losses, PromptScorer
from emobench.inference.scoring.trie import LabelPrompts

sys.path.insert(0, str(Path(__file__).parent))  # the package of tests has no __init__.py

from tiny_models import BEST, CONFIGS, CONTEXT, EOS, random_prompts, tiny_model


def reference(model: Any, prompts: list[LabelPrompts], eos: int | None = EOS) -> list[Losses]:
    """Return the losses by their definition: cross-entropy of each prompt's whole logits, by itself."""
    found = []
    for prompt in prompts:
        nats, own = [], []
        for ids, start in zip(prompt.tokens, prompt.label_starts or (0,) * len(prompt.tokens), strict=True):
            ids_T = torch.tensor(ids)
            with torch.no_grad():
                logits_TV = model(input_ids=ids_T[None, : max(1, len(ids) - 1)]).logits[0].double()
            nats_T = F.cross_entropy(logits_TV[: len(ids) - 1], ids_T[1:], reduction="none")
            nats_T[ids_T[1:] == eos] = 0
            nats.append(float(nats_T.sum()))
            own.append(float(nats_T[max(0, start - 1) :].sum()))
        counted = [[token != eos for token in ids] for ids in prompt.tokens]
        starts = prompt.label_starts
        found.append(
            Losses(
                tuple(nats),
                tuple(map(sum, counted)),
                tuple(own) if starts else (),
                tuple(sum(c[s:]) for c, s in zip(counted, starts, strict=True)) if starts else (),
            )
        )
    return found


def scorer_of(model: Any, engine: str = "auto", **more: Any) -> PromptScorer:
    return PromptScorer(model, engine, unscored=EOS, **more)


def scored(scorer: PromptScorer, prompts: list[LabelPrompts]) -> list[Losses]:
    found: dict[int, Losses] = {}
    for batch in scorer.batches(prompts):
        found.update(zip(batch, scorer.losses([prompts[i] for i in batch]), strict=True))
    return [found[i] for i in range(len(prompts))]


def assert_same(found: list[Losses], expected: list[Losses], tolerance: float = 2e-5) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.prompt_nats == pytest.approx(other.prompt_nats, abs=tolerance * CONTEXT, rel=0)
        assert one.label_nats == pytest.approx(other.label_nats, abs=tolerance * 8, rel=0)
        assert (one.prompt_tokens, one.label_tokens) == (other.prompt_tokens, other.label_tokens)


@pytest.fixture(scope="module")
def gpt2() -> Any:
    return tiny_model("gpt2")


@pytest.mark.parametrize("name", CONFIGS)
def test_auto_finds_an_engine_that_is_right(name: str) -> None:
    model, prompts = tiny_model(name), random_prompts(8)
    scorer = scorer_of(model)
    assert_same(scored(scorer, prompts), reference(model, prompts))
    assert scorer.engine == BEST[name]
    assert bool(scorer.refused) is (scorer.engine == "plain")


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_may_be_wider_than_the_context_if_prompts_are_not(name: str) -> None:
    model, prompts = tiny_model(name), random_prompts(3, labels=6, shared=(CONTEXT - 6, CONTEXT - 6))
    assert (
        max(prompt.shared + sum(len(ids) - prompt.shared - 1 for ids in prompt.tokens) for prompt in prompts) > CONTEXT
    )
    scorer = scorer_of(model)
    assert_same(scored(scorer, prompts), reference(model, prompts))
    assert scorer.engine == BEST[name]


@pytest.mark.parametrize("engine", ["trie", "plain"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_engines_agree_with_whole_logits(engine: str, attention: str) -> None:
    model = tiny_model("llama", attn_implementation=attention)
    prompts = [*random_prompts(7), *random_prompts(3, seed=1, shared=(1, 1))]
    assert_same(scored(scorer_of(model, engine, token_budget=150), prompts), reference(model, prompts))


@pytest.mark.parametrize("engine", ["trie", "plain"])
@pytest.mark.parametrize(
    ("tokens", "starts"),
    [
        pytest.param([(5, 6, 7), (8, 9), (10,)], (0, 1, 0), id="nothing shared, one label of one token"),
        pytest.param([(5, 6, 7), (5, 6), (5, 6, 7, 8)], (2, 1, 1), id="labels that are parts of one another"),
        pytest.param([(5, 6, 7), (5, 6, 8), (5, 6, 9)], (2, 2, 2), id="labels of one token: no second pass"),
        pytest.param([(5, 6, 7), (5, 6, 7), (5, 6, 7)], (2, 2, 2), id="all equal"),
        pytest.param([(5,), (5,), (5,)], (0, 0, 0), id="one token, all equal"),
        pytest.param([(5, 6), (7, 8), (7, 9)], (0, 0, 0), id="nothing shared by all, something by two"),
        pytest.param([(1, 5, 1, 6, 7, 1), (1, 5, 1, 6, 1, 8)], (1, 3), id="literal EOS everywhere"),
        pytest.param([(5, 6, 7, 8), (5, 6, 7, 9)], (1, 2), id="labels that begin in what is shared"),
        pytest.param([(5, 6, 7, 8), (5, 6, 7, 9)], None, id="no offsets"),
    ],
)
def test_edges(gpt2: Any, engine: str, tokens: list[tuple[int, ...]], starts: tuple[int, ...] | None) -> None:
    prompt = LabelPrompts(id="edge", tokens=tuple(tokens), label_starts=starts)
    # Beside a longer one, so that it is padded.
    prompts = [prompt, *random_prompts(1, labels=len(tokens))]
    scorer = scorer_of(gpt2, engine)
    scorer.batches(prompts)
    assert_same(scorer.losses(prompts), reference(gpt2, prompts))
    assert_same(scorer.losses([prompt]), reference(gpt2, [prompt]))


def test_tokens_are_forwarded_once_and_padding_is_little(gpt2: Any) -> None:
    prompts = random_prompts(120, labels=3)
    scorer = scorer_of(gpt2, "trie")
    scored(scorer, prompts)
    assert scorer.counts.tokens == sum(trie_tokens([prompt]) for prompt in prompts)
    assert 0.95 * scorer.counts.slots <= scorer.counts.tokens < scorer.counts.slots


def trie_tokens(prompts: list[LabelPrompts]) -> int:
    """Return the tokens to read by the definition of a trie: the beginnings that are somewhere followed by a token."""
    return len({ids[:count] for prompt in prompts for ids in prompt.tokens for count in range(1, len(ids))})


def fixed_shots(groups: int, examples: int, shots: int = 40) -> list[LabelPrompts]:
    """Return examples in groups that begin alike, in an order that mixes the groups."""
    found = []
    for place, prompt in enumerate(random_prompts(groups * examples, shared=(3, 9))):
        start = tuple(2 + (7 * i + place % groups) % 90 for i in range(shots))
        starts = None if prompt.label_starts is None else tuple(shots + first for first in prompt.label_starts)
        tokens = tuple((*start, *ids) for ids in prompt.tokens)
        found.append(replace(prompt, id=str(place), tokens=tokens, label_starts=starts))
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_what_many_examples_begin_with_is_read_once(name: str) -> None:
    model, prompts = tiny_model(name), fixed_shots(groups=2, examples=6)
    scorer = scorer_of(model, token_budget=100)
    assert_same(scored(scorer, prompts), reference(model, prompts))
    if scorer.layout == "joined":
        # Behind the shots, little is alike by chance.
        assert trie_tokens(prompts) <= scorer.counts.tokens <= trie_tokens(prompts) + 2 * len(prompts)
        assert len(scorer.batches(prompts)) > 2


def test_a_trunk_may_fill_the_context(gpt2: Any) -> None:
    shared = tuple(2 + i % 90 for i in range(CONTEXT))
    prompts = [
        LabelPrompts(id=str(i), tokens=((*shared, 5 + i), (*shared, 40 + i)), label_starts=(CONTEXT, CONTEXT))
        for i in range(4)
    ]
    scorer = scorer_of(gpt2, "trie", token_budget=100)
    assert_same(scored(scorer, prompts), reference(gpt2, prompts))
    assert scorer.counts.tokens == CONTEXT


def test_examples_that_go_on_alike_share_a_row(gpt2: Any) -> None:
    prompts = fixed_shots(groups=1, examples=5, shots=30)
    again = [replace(prompt, id=f"{prompt.id} again") for prompt in prompts]
    scorer = scorer_of(gpt2, "trie")
    found = scored(scorer, [*prompts, *again])
    assert_same(found, [*reference(gpt2, prompts)] * 2)
    assert found[:5] == found[5:]


@pytest.mark.parametrize("engine", ["trie", "plain"])
def test_labels_alone_cost_no_head_for_the_rest(gpt2: Any, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = fixed_shots(groups=2, examples=4, shots=35)
    whole = scored(scorer_of(gpt2, engine), prompts)
    read: list[int] = []
    statistics = module.token_statistics
    monkeypatch.setattr(module, "token_statistics", lambda h, *rest: read.append(len(h)) or statistics(h, *rest))
    found = scored(scorer_of(gpt2, engine, labels_only=True), prompts)
    assert_same(found, [replace(one, prompt_nats=()) for one in whole])
    assert sum(read) <= sum(sum(one.label_tokens) for one in whole)


@pytest.mark.parametrize("engine", ["trie", "plain"])
def test_greedy_labels_are_those_of_the_most_likely_tokens(gpt2: Any, engine: str) -> None:
    prompts = fixed_shots(groups=2, examples=6, shots=35)
    for place, prompt in enumerate(prompts[::2]):  # a label that the model would write itself
        assert prompt.label_starts is not None
        ids, start = prompt.tokens[0], prompt.label_starts[0]
        written = list(ids[:start])
        while len(written) < len(ids):
            written.append(int(gpt2(input_ids=torch.tensor([written])).logits[0, -1].argmax()))
        prompts[2 * place] = replace(prompt, tokens=(tuple(written), *prompt.tokens[1:]))
    found = scored(PromptScorer(gpt2, engine, labels_only=True, greedy=True), prompts)
    expected = []
    for prompt in prompts:
        flags = []
        for ids, start in zip(prompt.tokens, prompt.label_starts or (), strict=True):
            likely_T = gpt2(input_ids=torch.tensor([ids])).logits[0, start - 1 : -1].argmax(-1)
            flags.append(likely_T.tolist() == list(ids[start:]))
        expected.append(tuple(flags))
    assert [one.label_greedy for one in found] == expected
    assert {flag for flags in expected for flag in flags} == {True, False}


def test_batches_do_not_matter(gpt2: Any) -> None:
    prompts = random_prompts(12)
    whole = scorer_of(gpt2, token_budget=4096)
    one_by_one = scorer_of(gpt2, token_budget=1)
    assert len(one_by_one.batches(prompts)) == 12
    assert len(whole.batches(prompts)) < 12
    assert_same(scored(whole, prompts), scored(one_by_one, prompts), 1e-6)
    # A batch alone, as after an interruption, gives the same bits.
    again = scorer_of(gpt2, token_budget=4096)
    batches = again.batches(prompts)
    complete = scored(whole, prompts)
    assert again.losses([prompts[i] for i in batches[-1]]) == [complete[i] for i in batches[-1]]


def test_an_engine_that_is_wrong_for_the_model_is_refused_by_name() -> None:
    with pytest.raises(ModelError, match=r"icl.engine=trie does not give .* BloomForCausalLM .* icl.engine=auto"):
        scorer_of(tiny_model("bloom"), "trie").batches(random_prompts(2))


def test_a_window_counts_only_for_prompts_that_are_longer() -> None:
    model = tiny_model("mistral, short window")
    short, long = random_prompts(4, shared=(2, 5)), random_prompts(2, shared=(30, 40))
    scorer = scorer_of(model)
    assert_same(scored(scorer, short), reference(model, short))
    assert scorer.engine == "trie"
    # Longer ones than `batches` knew of are looked at by themselves, and change nothing for others.
    assert_same(scorer.losses(long), reference(model, long))
    assert scorer.engine == "trie"


def test_examples_share_no_row_where_a_window_counts_its_slots() -> None:
    config = CONFIGS["gpt-neo, local"]()
    config.window_size = 58
    model, llama = tiny_model("gpt-neo, local", config=config), tiny_model("llama")
    (trunk,) = random_prompts(1, shared=(32, 32))
    prompts = []
    for group in range(3):
        (branch,) = random_prompts(1, seed=1 + group, shared=(14, 14))
        start = (*trunk.tokens[0][:32], *branch.tokens[0][:14])
        for one in random_prompts(8, seed=10 + group, labels=2, shared=(2, 2)):
            tokens = tuple((*start, *ids) for ids in one.tokens)
            starts = tuple(len(start) + place for place in one.label_starts or ())
            prompts.append(replace(one, id=f"{group} {one.id}", tokens=tokens, label_starts=starts))
    assert max(len(ids) for prompt in prompts for ids in prompt.tokens) < config.window_size
    for one, joins in ((model, False), (llama, True)):
        scorer = scorer_of(one, token_budget=1024)
        assert_same(scored(scorer, prompts), reference(one, prompts))
        assert scorer.layout == ("joined" if joins else "alone")


@pytest.mark.parametrize("name", ["mistral, short window", "gemma2, short window", "gpt-neo, local", "llama"])
@pytest.mark.parametrize("seed", range(12))
def test_a_window_is_kept_in_mixtures_of_prompts(name: str, seed: int) -> None:
    """Labels of one token, which are not read and so need no mask, among others; trunks that outgrow the window."""
    draw = random.Random(seed)
    model, prompts = tiny_model(name), []
    trunk = tuple(draw.choices(range(2, 97), k=draw.choice((0, 12, 20, 40))))
    for number in range(6):
        own = tuple(draw.choices(range(2, 97), k=draw.choice((2, 2, 5, 20))))
        start = (*trunk, *own) if number and draw.random() < 0.8 else own
        sizes = (1, 1, 1) if draw.random() < 0.6 else (1, 2, 3)
        first = draw.sample(range(2, 97), 3)
        tokens = tuple((*start, one, *draw.choices(range(2, 97), k=n - 1)) for one, n in zip(first, sizes, strict=True))
        prompts.append(LabelPrompts(id=str(number), tokens=tokens, label_starts=(len(start),) * 3))
    scorer = scorer_of(model, token_budget=draw.choice((60, 200, 1000)))
    assert_same(scored(scorer, prompts), reference(model, prompts))


@pytest.mark.parametrize("name", ["mistral, short window", "gemma2, short window"])
def test_a_trunk_that_outgrows_the_window_is_read_with_each_row(name: str) -> None:
    config, trunk = CONFIGS[name](), tuple(range(2, 40))
    config.sliding_window = 24  # what is compared with `plain`, half of what the labels share, is within it
    model = tiny_model(name, config=config)
    prompts = [
        LabelPrompts(id=str(i), tokens=tuple((*trunk, 40 + i, label) for label in (7, 8, 9)), label_starts=(39,) * 3)
        for i in range(4)
    ]
    scorer = scorer_of(model, token_budget=100)
    assert_same(scored(scorer, prompts), reference(model, prompts))
    assert scorer.layout == "alone"


@pytest.mark.parametrize("name", ["mistral, short window", "gemma2, short window"])
def test_a_mask_for_short_prompts_is_tried_on_the_longest(name: str) -> None:
    model, trunk = tiny_model(name), tuple(range(2, 42))
    long = LabelPrompts(id="a", tokens=tuple((*trunk, label) for label in (7, 8, 9)), label_starts=(40,) * 3)
    short = LabelPrompts(id="b", tokens=((*trunk[5:35], 7, 8, 9), (*trunk[5:35], 9, 8, 9)), label_starts=(30, 30))
    scorer = scorer_of(model)
    assert_same(scored(scorer, [long]), reference(model, [long]))
    assert scorer.engine == "trie"
    assert_same(scored(scorer, [long, short]), reference(model, [long, short]))
    assert scorer.engine == "plain"


def test_a_prompt_beyond_the_context_is_named(gpt2: Any) -> None:
    ids = tuple(range(2, CONTEXT + 4))
    prompt = LabelPrompts(id="7", tokens=(ids, (*ids[:-1], 4)), label_starts=None)
    with pytest.raises(ModelError, match=f"example 7 has {CONTEXT + 2} tokens, but GPT2LMHeadModel .* {CONTEXT}"):
        scorer_of(gpt2).batches([*random_prompts(2), prompt])
    fits = replace(prompt, tokens=tuple(tokens[:-1] for tokens in prompt.tokens))
    assert_same(scored(scorer_of(gpt2), [fits]), reference(gpt2, [fits]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("engine", ["auto", "plain"])
def test_half_precision_gives_float32_losses(dtype: torch.dtype, engine: str) -> None:
    model, prompts = tiny_model("llama", dtype), random_prompts(6)
    scorer = scorer_of(model, engine)
    found = scored(scorer, prompts)
    assert scorer.engine == ("trie" if engine == "auto" else engine)
    # The trunk rounds; its logits, made in float32 from the rounded hidden states, do not.
    alone = scored(scorer_of(model, "plain", token_budget=1), prompts)
    exact = reference(tiny_model("llama").to(dtype).float(), prompts)
    for one, other, best in zip(found, alone, exact, strict=True):
        for mine, plain, ideal in zip(one.prompt_nats, other.prompt_nats, best.prompt_nats, strict=True):
            assert mine == pytest.approx(plain, rel=1e-2)
            assert mine == pytest.approx(ideal, rel=2e-2)
    assert any(nats != torch.tensor(nats).to(dtype).item() for nats in found[0].prompt_nats)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("engine", ["trie", "plain"])
def test_on_a_gpu(dtype: torch.dtype, engine: str) -> None:
    prompts = random_prompts(30)
    expected = scored(scorer_of(tiny_model("llama", dtype).float(), "plain"), prompts)
    found = scored(scorer_of(tiny_model("llama", dtype).cuda(), engine), prompts)
    for one, other in zip(found, expected, strict=True):
        assert one.prompt_nats == pytest.approx(other.prompt_nats, rel=1e-4 if dtype == torch.float32 else 2e-2)
        assert one.label_tokens == other.label_tokens
