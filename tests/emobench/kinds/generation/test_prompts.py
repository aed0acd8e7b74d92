"""Prompts: which texts are used and how they are cut, against counts done by hand."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from emobench.core.errors import ConfigError, DataError, ModelError
from emobench.core.settings import build
from emobench.kinds.generation.prompts import ContinuationPrompt, PromptRule, select_prompts

WORDS = ["<s>", "<unk>", *(f"w{i}" for i in range(50))]
PAPER = PromptRule(unit="tokens", prefix=3, continuation=2)
OFFICIAL = {"unit": "words", "margin": 10, "min_characters": 100, "without": ["=="], "joiner": " "}


def word_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", **special)


def prompts_of(*arguments: Any, **more: Any) -> list[ContinuationPrompt]:
    return select_prompts(*arguments, **more).prompts


def text_of(count: int) -> str:
    return " ".join(f"w{i}" for i in range(count))


def test_tokens_rule_takes_texts_of_exactly_the_length_and_more() -> None:
    texts = [text_of(4), text_of(5), text_of(9)]
    prompts = prompts_of(texts, word_tokenizer(), PAPER)
    assert [p.prefix_ids for p in prompts] == [(2, 3, 4), (2, 3, 4)]
    assert [p.prefix_text for p in prompts] == ["w0 w1 w2"] * 2
    assert [p.reference_text for p in prompts] == ["w0 w1 w2 w3 w4"] * 2
    assert prompts[1].id == hashlib.sha256(texts[2].encode()).hexdigest()[:12] + "-2"
    assert prompts_of(texts, word_tokenizer(), PAPER, limit=1) == prompts[:1]


def test_words_rule_has_its_margin_its_characters_and_its_banned_string() -> None:
    rule = build(PromptRule, {**OFFICIAL, "prefix": 3, "continuation": 20}, "test")
    short, enough = text_of(32), text_of(33)
    heading = "== " + text_of(40)
    few_characters = " ".join("w1" for _ in range(33))  # 33 words, 98 characters
    assert len(short) > 100
    assert len(few_characters) == 98
    prompts = prompts_of([short, enough, heading, few_characters], word_tokenizer(), rule)
    assert [p.text for p in prompts] == [enough]
    assert prompts[0].prefix_text == "w0 w1 w2"
    assert prompts[0].reference_text == text_of(23)


def test_words_are_split_on_single_spaces_as_in_the_official_code() -> None:
    rule = PromptRule(unit="words", prefix=2, continuation=1)
    prompt = prompts_of(["w0  w1 w2"], word_tokenizer(), rule)[0]  # words: w0, "", w1, w2
    assert (prompt.prefix_text, prompt.reference_text) == ("w0 ", "w0  w1")


@pytest.mark.parametrize(("bos", "expected"), [("none", [2, 3, 4]), ("one", [0, 2, 3, 4])])
def test_bos_is_what_the_rule_says_and_counts_as_no_token(bos: str, expected: list[int]) -> None:
    rule = build(PromptRule, {"unit": "tokens", "prefix": 3, "continuation": 2, "bos": bos}, "test")
    (prompt,) = prompts_of([text_of(5)], word_tokenizer(bos_token="<s>"), rule)
    assert list(prompt.prefix_ids) == expected


def test_a_second_bos_or_none_where_one_is_asked_for_is_refused() -> None:
    one = PromptRule(unit="tokens", prefix=3, continuation=2, bos="one")
    with pytest.raises(ModelError, match=r"begins with 2 BOS tokens where the protocol asks for 1"):
        select_prompts(["<s> " + text_of(5)], word_tokenizer(bos_token="<s>"), one)
    with pytest.raises(ModelError, match=r"begins with 1 BOS tokens where the protocol asks for 0"):
        select_prompts(["<s> " + text_of(5)], word_tokenizer(bos_token="<s>"), PAPER)
    with pytest.raises(ModelError, match="has no BOS token"):
        select_prompts([text_of(5)], word_tokenizer(), one)


def test_no_qualifying_text_says_how_many_and_how_long() -> None:
    with pytest.raises(DataError, match=r"None of 2 texts .* at least 5 tokens.* the longest text has 4 tokens"):
        select_prompts([text_of(4), text_of(2)], word_tokenizer(), PAPER)
    with pytest.raises(DataError, match="None of 0 texts"):
        select_prompts([], word_tokenizer(), PAPER)
    with pytest.raises(ConfigError, match="at least 1"):
        PromptRule(unit="tokens", prefix=0, continuation=2)


def test_texts_that_are_too_short_are_told_lengths_that_fit() -> None:
    texts = [text_of(count) for count in (4, 3, 4, 2)]
    with pytest.raises(DataError) as refused:
        select_prompts(texts, word_tokenizer(), PAPER)
    message = str(refused.value)
    assert "--set generation.prefix=1 --set generation.continuation=2," in message
    assert "characters" not in message
    assert "strings" not in message
    assert len(prompts_of(texts, word_tokenizer(), PromptRule(unit="tokens", prefix=1, continuation=2))) == 3
    banned = build(PromptRule, {**OFFICIAL, "prefix": 3, "continuation": 20}, "test")
    with pytest.raises(DataError, match=r"at least 100 characters, none of the strings \['=='\].*longer texts\.$"):
        select_prompts(["== " + text_of(40)], word_tokenizer(), banned)


def test_the_official_filters_leave_971_texts_of_wikitext(wikitext: list[str], real_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(real_model)
    rule = build(PromptRule, {**OFFICIAL, "prefix": 20, "continuation": 80}, "test")
    prompts = prompts_of(wikitext, tokenizer, rule)
    assert len(prompts) == 971  # counted independently, facts on the official protocol
    assert all(p.text.startswith(p.reference_text) for p in prompts)
    assert len({p.id for p in prompts}) == 971
    chosen = select_prompts(wikitext, tokenizer, rule, limit=2000)
    assert json.loads(chosen.to_json())["used"] == 971
    assert len(wikitext) == 971 + sum(chosen.dropped.values())


def test_token_prefixes_are_the_beginning_of_real_texts(wikitext: list[str], real_model: Path) -> None:
    texts = wikitext[:300]
    tokenizer = AutoTokenizer.from_pretrained(real_model)
    prompts = prompts_of(texts, tokenizer, PromptRule(unit="tokens", prefix=20, continuation=80))
    expected = [t for t in texts if len(tokenizer.encode(t, add_special_tokens=False, verbose=False)) >= 100]
    assert [p.text for p in prompts] == expected
    assert all(len(p.prefix_ids) == 20 and p.text.startswith(p.prefix_text) for p in prompts)
    assert all(len(tokenizer.encode(p.reference_text, add_special_tokens=False)) == 100 for p in prompts)


def test_what_was_dropped_is_counted_and_why() -> None:
    rule = build(PromptRule, {**OFFICIAL, "prefix": 3, "continuation": 20, "first_texts": 6}, "test")
    few_characters = " ".join("w1" for _ in range(33))
    texts = [text_of(40), "== " + text_of(9), text_of(32), "== " + text_of(40), few_characters]
    texts += [text_of(41), text_of(42)]
    chosen = select_prompts(texts, word_tokenizer(), rule)
    assert json.loads(chosen.to_json()) == {
        "texts": 7,
        "used": 2,
        "limit": None,
        "too_short": 2,  # a text is counted by the first reason alone
        "too_few_characters": 1,
        "excluded": 1,
        "not_looked_at": 1,
    }
    assert str(chosen) == "2 of 7 texts (2 too short, 1 too few characters, 1 excluded, 1 not looked at)"
    few = select_prompts(texts, word_tokenizer(), rule, limit=1)
    assert (len(few.prompts), few.limit, few.dropped["not_looked_at"]) == (1, 1, 6)
    assert str(select_prompts([text_of(40)], word_tokenizer(), rule, limit=3)) == "1 of 1 texts"


def with_template(tokenizer: PreTrainedTokenizerFast, first: str) -> PreTrainedTokenizerFast:
    """Let a tokenizer begin each text with a token, as LLaMA's and OPT's do."""
    template = processors.TemplateProcessing(single=f"{first} $A", special_tokens=[(first, WORDS.index(first))])
    tokenizer.backend_tokenizer.post_processor = template
    return tokenizer


def test_a_bos_where_the_tokenizer_adds_one_by_itself() -> None:
    rule = PromptRule(unit="tokens", prefix=3, continuation=2, bos="tokenizer")

    def ids(tokenizer: PreTrainedTokenizerFast) -> tuple[int, ...]:
        return prompts_of([text_of(5)], tokenizer, rule)[0].prefix_ids

    assert ids(word_tokenizer(bos_token="<s>", eos_token="<s>")) == (2, 3, 4)  # GPT-2 has one, and adds none
    assert ids(word_tokenizer()) == (2, 3, 4)
    assert ids(with_template(word_tokenizer(bos_token="<s>"), "<s>")) == (0, 2, 3, 4)  # LLaMA; OPT calls it </s>
    assert ids(with_template(word_tokenizer(bos_token="<s>"), "<unk>")) == (2, 3, 4)  # a first token that is no BOS
