"""Prompts: their text, their tokens, what labels share, lost shots, and exactly one BOS or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from emobench.core.errors import ConfigError, ModelError
from emobench.data.labelled import Example
from emobench.kinds.icl.prompts import Draft, ExamplePrompts, check_boundaries, make_prompts
from emobench.kinds.icl.rules import IclProtocol
from emobench.kinds.icl.show_prompts import pieces

RULES = IclProtocol(template='"{text}" It is {label}.', labels={"neg": "bad", "pos": "very good"}, shots=2)
CORPUS = ['"a fine film" It is very good.', '"no plot at all" It is bad.', "It is about subjective things"] * 3


def example(text: str, label: str = "pos", name: str | None = None, **fields: str) -> Example:
    return Example(name or f"id of {text}", {"text": text, **fields}, label, where="x.test.jsonl:7")


SHOTS = (example("near", "pos"), example("far", "neg"))
DRAFT = Draft(example=example("this one", "neg"), shots=SHOTS)


def byte_level(**special: str) -> PreTrainedTokenizerFast:
    """As GPT-2's: bytes and merges; it adds no token by itself."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    names = list(dict.fromkeys(special.values()))
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=names, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def adding(tokenizer: PreTrainedTokenizerFast, before: str, after: str = "") -> PreTrainedTokenizerFast:
    """Let a tokenizer put tokens around what it is given."""
    names = {name for name in f"{before} {after}".split() if name}
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{before} $A {after}".strip(),
        special_tokens=[(name, tokenizer.convert_tokens_to_ids(name)) for name in sorted(names)],
    )
    return tokenizer


def gpt2_like() -> PreTrainedTokenizerFast:
    return byte_level(bos_token="<|endoftext|>", eos_token="<|endoftext|>")


def opt_like() -> PreTrainedTokenizerFast:
    """Its BOS is also its EOS, and stands before every text."""
    return adding(byte_level(bos_token="</s>", eos_token="</s>"), "</s>")


def llama_like(before: str = "<s>", after: str = "") -> PreTrainedTokenizerFast:
    """As SentencePiece's: a space is a letter, one stands before the text, and so does <s>."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    return adding(fast, before, after) if before or after else fast


LIKE: dict[str, Callable[[], PreTrainedTokenizerFast]] = {"gpt2": gpt2_like, "llama": llama_like, "opt": opt_like}


def made(
    draft: Draft, tokenizer: Any, rules: IclProtocol = RULES, limit: int | None = None, **given: Any
) -> ExamplePrompts:
    (prompt,) = make_prompts([draft], tokenizer, rules, limit, task="mine", **given)
    return prompt


# What the text is.


def test_a_prompt_is_the_header_the_shots_nearest_first_and_the_example() -> None:
    rules = replace(RULES, header="About {group}:\n\n", separator="\n--\n")
    draft = replace(DRAFT, example=example("this one", "neg", group="films"))
    begin = 'About films:\n\n"near" It is very good.\n--\n"far" It is bad.\n--\n"this one" It is '
    assert draft.texts(rules) == [(begin + "bad.", len(begin)), (begin + "very good.", len(begin))]
    last = 'About films:\n\n"far" It is bad.\n--\n"near" It is very good.\n--\n"this one" It is '
    assert draft.texts(replace(rules, order="nearest-last"))[0] == (last + "bad.", len(last))


def test_values_take_the_place_of_the_test_examples_fields_alone() -> None:
    text, start = DRAFT.texts(RULES, {"text": "N/A"})[1]
    assert text == '"near" It is very good.\n"far" It is bad.\n"N/A" It is very good.'
    assert text[start:] == "very good."


# What the tokens are.


@pytest.mark.parametrize("name", LIKE)
def test_tokens_are_those_of_the_whole_text_in_one_call(name: str) -> None:
    tokenizer = LIKE[name]()
    prompt = made(DRAFT, tokenizer)
    assert prompt.tokens == tuple(tuple(tokenizer(text)["input_ids"]) for text, _ in DRAFT.texts(RULES))
    assert (prompt.id, prompt.shots, prompt.dropped) == ("id of this one", ("id of near", "id of far"), 0)


@pytest.mark.parametrize("name", LIKE)
@given(st.lists(st.text(alphabet="abt \"'éß漢🙂\n", max_size=12), min_size=1, max_size=4))
def test_a_labels_tokens_hold_all_of_its_text_and_nothing_before(name: str, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[name]
    draft = Draft(example=example(texts[0]), shots=tuple(map(example, texts[1:])))
    for place, ids in enumerate(made(draft, tokenizer).tokens):
        start = made(draft, tokenizer).label_starts[place]  # type: ignore[index]
        whole, begin = draft.texts(RULES)[place]
        offsets = tokenizer(whole, return_offsets_mapping=True)["offset_mapping"]
        assert offsets[start][1] > begin
        assert all(end <= begin for _, end in offsets[:start])
        assert len(offsets) == len(ids)


TOKENIZERS = {name: make() for name, make in LIKE.items()}
LLAMA = TOKENIZERS["llama"]


def test_labels_share_the_longest_common_prefix_of_tokens_not_of_text() -> None:
    tokenizer = gpt2_like()
    rules = IclProtocol(template="{text} {label}.", labels={"a": "subjective", "b": "sub", "c": "subway"})
    prompt = made(Draft(example=example("x"), shots=()), tokenizer, rules)
    first, second, third = prompt.tokens
    assert len({row[: prompt.shared] for row in prompt.tokens}) == 1
    assert len({row[prompt.shared] for row in prompt.tokens}) > 1
    # By text they would share " sub", which is no token of "subjective".
    assert tokenizer.decode(first[: prompt.shared]) == "x"
    assert second != third


# What does not fit.


def lengths(draft: Draft, tokenizer: Any, rules: IclProtocol = RULES) -> int:
    return max(len(tokenizer(text)["input_ids"]) for text, _ in draft.texts(rules))


@pytest.mark.parametrize("name", LIKE)
def test_the_least_similar_shots_go_for_all_labels_alike(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    shots = tuple(example(f"shot {i}", "neg") for i in range(6))
    draft = Draft(example=example("the test"), shots=shots)
    for kept in range(7):
        fits = replace(draft, shots=shots[:kept])
        limit = lengths(fits, tokenizer)
        prompt = made(draft, tokenizer, limit=limit)
        assert prompt.tokens == made(fits, tokenizer).tokens
        assert (prompt.shots, prompt.dropped) == (tuple(s.id for s in shots[:kept]), 6 - kept)
        if kept:
            assert made(draft, tokenizer, limit=limit - 1).dropped == 7 - kept


def test_a_prompt_that_is_cut_keeps_its_shots_and_loses_its_end() -> None:
    tokenizer, rules = TOKENIZERS["opt"], replace(RULES, too_long="cut_right")
    whole = made(DRAFT, tokenizer, rules)
    assert (whole.cut, whole.dropped) == (0, 0)
    assert whole.label_starts is not None
    for limit in range(2, max(map(len, whole.tokens)) + 1):
        prompt = made(DRAFT, tokenizer, rules, limit)
        assert prompt.tokens == tuple(ids[:limit] for ids in whole.tokens)  # with the BOS, as a tokenizer truncates
        assert (prompt.shots, prompt.dropped, prompt.cut) == (whole.shots, 0, max(map(len, whole.tokens)) - limit)
        assert (prompt.label_starts is None) == (prompt.cut > 0)


def test_the_least_similar_shot_goes_wherever_it_stands() -> None:
    rules = replace(RULES, order="nearest-last")
    tokenizer = TOKENIZERS["gpt2"]
    prompt = made(DRAFT, tokenizer, rules, limit=lengths(DRAFT, tokenizer, rules) - 1)
    assert prompt.shots == ("id of near",)
    assert "near" in tokenizer.decode(prompt.tokens[0])
    assert "far" not in tokenizer.decode(prompt.tokens[0])


def test_a_prompt_that_does_not_fit_without_shots_names_task_file_line_and_lengths() -> None:
    tokenizer = TOKENIZERS["gpt2"]
    needed = lengths(replace(DRAFT, shots=()), tokenizer)
    with pytest.raises(ConfigError, match=rf"^Task mine, x\.test\.jsonl:7: the prompt has {needed} tokens without any"):
        made(DRAFT, tokenizer, limit=needed - 1)
    assert made(DRAFT, tokenizer, limit=needed).shots == ()


# Exactly one BOS, or none.


@pytest.mark.parametrize(
    ("name", "rule", "count"),
    [
        ("gpt2", "tokenizer", 0), ("gpt2", "none", 0), ("gpt2", "one", 1),
        ("llama", "tokenizer", 1), ("llama", "none", 0), ("llama", "one", 1),
        ("opt", "tokenizer", 1), ("opt", "none", 0), ("opt", "one", 1),
    ],
)  # fmt: skip
def test_the_protocol_says_how_many_bos_there_are(name: str, rule: Any, count: int) -> None:
    tokenizer = TOKENIZERS[name]
    rules = replace(RULES, bos=rule)
    prompt = made(DRAFT, tokenizer, rules)
    plain = made(DRAFT, tokenizer, replace(RULES, bos="none"))
    for ids, bare in zip(prompt.tokens, plain.tokens, strict=True):
        assert ids == (tokenizer.bos_token_id,) * count + bare
        assert ids.count(tokenizer.bos_token_id) == count
    assert prompt.label_starts == tuple(start + count for start in plain.label_starts or ())


@pytest.mark.parametrize(
    ("tokenizer", "rule", "text", "problem"),
    [
        (llama_like("<s> <s>"), "tokenizer", "x", "begins with 2 BOS tokens where the protocol asks for bos=tokenizer"),
        (adding(byte_level(bos_token="<s>"), "<s>"), "tokenizer", "<s> x", "the text begins with the token's name"),
        (llama_like("<s>", "</s>"), "tokenizer", "x", "puts an EOS token behind the prompt"),
        (byte_level(eos_token="</s>"), "one", "x", "asks for one BOS, but the tokenizer"),
    ],
)
def test_another_begin_or_end_is_refused_wherever_it_is(tokenizer: Any, rule: Any, text: str, problem: str) -> None:
    rules = replace(RULES, bos=rule, template="{text} It is {label}.")
    drafts = [Draft(example=example(text if i == 3 else "x"), shots=()) for i in range(5)]
    with pytest.raises(ModelError, match=problem):
        make_prompts(drafts, tokenizer, rules, None, task="mine")


def test_one_bos_replaces_what_a_tokenizer_adds() -> None:
    for around in (("<s> <s>",), ("<s>", "</s>")):
        assert made(DRAFT, llama_like(*around), replace(RULES, bos="one")).tokens == made(DRAFT, LLAMA).tokens


# Labels whose own losses cannot be compared.


def test_a_tokenizer_that_joins_the_label_to_what_stands_before_is_refused_by_example_and_label() -> None:
    letters = sorted(set("unkidhapy "))
    vocabulary = {token: i for i, token in enumerate([*letters, "un", "unk", "<s>"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE(vocabulary, [("u", "n"), ("un", "k")])), bos_token="<s>"
    )
    rules = IclProtocol(template="{text} un{label}", labels={"a": "happy", "b": "kind"}, bos="none")
    prompt = made(Draft(example=example("a"), shots=()), tokenizer, rules)
    with pytest.raises(
        ModelError, match=r"Task mine, example id of a: the tokenizer splits .* for 'kind' than for 'happy'"
    ):
        check_boundaries([prompt], "mine", rules.texts)
    spaced = replace(rules, template="{text} un {label}")
    check_boundaries([made(Draft(example=example("a"), shots=()), tokenizer, spaced)], "mine", rules.texts)


# A prompt taken apart.


@pytest.mark.parametrize("name", LIKE)
@pytest.mark.parametrize("order", ["nearest-first", "nearest-last"])
def test_pieces_are_the_prompt_and_its_tokens(name: str, order: Any) -> None:
    tokenizer, rules = TOKENIZERS[name], replace(RULES, order=order)
    draft = Draft(example=example('naïve 漢 "🙂"\n', "neg"), shots=SHOTS)
    prompt = made(draft, tokenizer, rules)
    for place, ids in enumerate(prompt.tokens):
        found = pieces(draft, rules, tokenizer, place)
        assert tuple(piece.token for piece in found if piece.token is not None) == ids
        shown = [piece for piece in found if piece.part != "BOS"]
        assert "".join(piece.text for piece in shown) == draft.texts(rules)[place][0]
        parts = list(dict.fromkeys(piece.part for piece in shown))
        shots = ["shot 1", "shot 2"] if order == "nearest-first" else ["shot 2", "shot 1"]
        assert parts == [*shots, "input", "label"]
        assert "".join(p.text for p in shown if p.part == "shot 1").strip() == '"near" It is very good.'
        label = [piece.token for piece in found if piece.part == "label"]
        assert label == list(ids[prompt.label_starts[place] :])  # type: ignore[index]


def test_a_bos_is_a_piece_with_its_name_and_dropped_spaces_are_of_no_token() -> None:
    assert pieces(DRAFT, RULES, TOKENIZERS["llama"], 0)[0].text == "<s>"
    words = Tokenizer(models.WordLevel({"<unk>": 0}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    found = pieces(Draft(example=example("a b"), shots=()), replace(RULES, template="{text} is {label}"), tokenizer, 0)
    assert "".join(piece.text for piece in found) == "a b is bad"
    assert [piece.text for piece in found if piece.token is None] == [" ", " ", " "]


def test_a_label_without_a_token_is_refused() -> None:
    letters = {token: place for place, token in enumerate("x is bad")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE(letters, [])), bos_token="<s>")
    rules = IclProtocol(template="{text} is {label}", labels={"a": "bad", "b": "good"}, bos="none")
    prompt = made(Draft(example=example("x"), shots=()), tokenizer, replace(rules, labels={"a": "bad", "b": "zzz"}))
    with pytest.raises(ModelError, match="Task mine, example id of x: the tokenizer gives the label 'zzz' no token"):
        check_boundaries([prompt], "mine", ("bad", "zzz"))


def test_labels_that_the_tokenizer_writes_alike_are_refused() -> None:
    words = Tokenizer(models.WordLevel({"<unk>": 0, "bad": 1}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    rules = IclProtocol(template="{text} is {label}", labels={"a": "bad", "b": "good", "c": "fine"})
    with pytest.raises(ModelError, match="Task mine: the tokenizer gives the labels 'good' and 'fine' the same tokens"):
        made(Draft(example=example("x"), shots=()), tokenizer, rules)
    made(Draft(example=example("x"), shots=()), tokenizer, replace(rules, labels={"a": "bad", "b": "good"}, ties=()))
