"""Chat templates: rendered as transformers renders them, by a process with limits; where responses begin and end."""

from __future__ import annotations

import os
import resource
import signal
import time
from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from emobench.core.errors import DataError, ModelError
from emobench.data.chat_templates import _WORKER, ChatRefusedError, continued_chat, end_of, frame_of, render_chat
from emobench.data.conversations import AlpacaFormat, ChatFormat, Conversation, Tokens, Turn, conversation_of

ASKED = [{"role": "user", "content": "Name it."}]
CHAT = [*ASKED, {"role": "assistant", "content": "It is red."}]
BODY = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
HEADER = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CHATML = BODY + HEADER
PLAIN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}END{% endfor %}"
PLAIN += "{% if add_generation_prompt %}assistant: {% endif %}"
THINK = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' and loop.last %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m['content'] }}<|im_end|>\n{% endfor %}" + HEADER
)


def tokenizer_with(template: str, added: str = "") -> Any:
    """A byte-level tokenizer with EOS; `added`: how it knows <|im_start|> and <|im_end|>."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        ["It is red. <|im_start|>assistant END user\n"] * 3,
        trainers.BpeTrainer(vocab_size=330, special_tokens=["<eos>"], initial_alphabet=alphabet),
    )
    found = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", chat_template=template)
    marks = ["<|im_start|>", "<|im_end|>"]
    if added == "ordinary":
        found.add_tokens(marks)
    if added == "special":
        found.add_special_tokens({"additional_special_tokens": marks})
    return found


def conversation(*texts: str) -> Conversation:
    roles = ("user", "assistant") * len(texts)
    return Conversation(tuple(Turn(role, text) for role, text in zip(roles, texts, strict=False)), where="rows:1")


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        THINK,
        "{{ bos_token }}{%- for m in messages -%}\n  {%- if loop.first %} A {% endif %}{{ m.content | tojson }}"
        "{%- endfor %}",
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}"
        "{{ dict(a=1) }}",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}"
        "{% continue %}{% endif %}[{{ m.content }}]{% endfor %}{{ tools is none }}{{ documents is defined }}",
        "{% macro f(x) %}<{{ x | upper | trim }}>{% endmacro %}{{ f(messages[0].content) }}"
        "{{ messages | tojson(indent=2) }}",
    ],
)
def test_a_template_is_rendered_as_by_transformers(template: str, asks: bool) -> None:
    tokenizer = tokenizer_with(template)
    expected = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=asks)
    assert render_chat(tokenizer, CHAT, asks=asks) == expected


@pytest.mark.parametrize("content", ["It is", "It is \n", "été \ud83d"])
@pytest.mark.parametrize("template", [CHATML, CHATML.replace("m['content']", "m['content'] | trim")])
def test_a_last_message_is_continued_as_by_transformers(template: str, content: str) -> None:
    tokenizer = tokenizer_with(template)
    chat = [*ASKED, {"role": "assistant", "content": content}]
    expected = tokenizer.apply_chat_template(chat, tokenize=False, continue_final_message=True)
    assert continued_chat(tokenizer, chat) == expected


@pytest.mark.parametrize(
    "clock",
    [
        "{{ strftime_now('%d %b %Y') }}",
        "{{ strftime_now ('%d %b %Y') }}",
        "{% set f = strftime_now %}{{ f('%d %b %Y') }}",
        "{% set form = '%d' ~ ' %b %Y' %}{{ strftime_now(form) }}",
        "{% macro day(f) %}{{ f('%d %b %Y') }}{% endmacro %}{{ day(strftime_now) }}",
        "{{ ['%d %b %Y'] | map('string') | first | string and strftime_now(format='%d %b %Y') if 0 else "
        "strftime_now('%d %b %Y') }}",
    ],
)
def test_a_template_gets_the_same_date_every_day(clock: str) -> None:
    assert render_chat(tokenizer_with(clock), ASKED, asks=True) == "26 Jul 2024"


@pytest.mark.parametrize("chance", ["{{ [1, 2, 3] | random }}", "{{ lipsum() }}", "{{ now() }}"])
def test_a_template_has_no_random_numbers(chance: str) -> None:
    with pytest.raises((ModelError, DataError)):
        render_chat(tokenizer_with(chance), ASKED, asks=True)


def test_a_text_does_not_depend_on_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    _WORKER.close()
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    assert render_chat(tokenizer_with("{{ strftime_now('%s') }}"), ASKED, asks=True) == "1721952000"
    _WORKER.close()


BOMBS = [
    "{{ 'x' * 900000000 }}",
    "{{ ('x' * 900000) | replace('x', 'y' * 9000) }}",
    "{% set ns = namespace(x='x') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
    "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "{{ '%999999999d' % 1 }}",
    "{{ 'x'.center(900000000) }}",
    "{{ [[1] * 90000000] * 90000000 }}",
    "{{ 9 ** (9 ** 9) }}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
]


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_template_takes_neither_the_memory_nor_the_time(bomb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emobench.data.chat_templates.SECONDS", 0.5)
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(ModelError, match="chat template"):
        render_chat(tokenizer_with(bomb), ASKED, asks=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**17  # KiB
    assert time.monotonic() - begun < 60
    assert render_chat(tokenizer_with(CHATML), ASKED, asks=False) == "<|im_start|>user\nName it.<|im_end|>\n"


def test_a_worker_that_was_killed_is_replaced() -> None:
    render_chat(tokenizer_with(CHATML), ASKED, asks=False)
    process = _WORKER._process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert render_chat(tokenizer_with("{{ messages[0].content }}"), ASKED, asks=False) == "Name it."


def test_a_long_conversation_of_short_turns_is_rendered() -> None:
    chat = [{"role": ("user", "assistant")[i % 2], "content": "a"} for i in range(20_000)]
    assert render_chat(tokenizer_with(CHATML), chat, asks=False).count("<|im_end|>") == 20_000


@pytest.mark.parametrize("template", ["{{ raise_exception('no') }}", "{{ messages[9].content.x }}", "{{ 1 + 'a' }}"])
def test_a_template_that_refuses_is_a_sentence(template: str) -> None:
    with pytest.raises(ChatRefusedError, match="its roles are user"):
        render_chat(tokenizer_with(template), ASKED, asks=True)
    with pytest.raises(DataError, match="rows:1: the chat template"):
        ChatFormat(tokenizer_with(template)).tokens(conversation("a", "b"))


@pytest.mark.parametrize("template", ["{% for", "{{ x | nofilter }}", "{% endfor %}"])
def test_a_template_that_is_none_is_a_sentence(template: str) -> None:
    with pytest.raises(ModelError, match=r"not valid \(line 1"):
        render_chat(tokenizer_with(template), ASKED, asks=True)


@pytest.mark.parametrize("added", ["special", "ordinary"])
def test_a_response_ends_at_the_token_that_the_template_writes(added: str) -> None:
    tokenizer = tokenizer_with(CHATML, added)
    layout, end = ChatFormat(tokenizer), tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert set(layout.end(conversation("a")).ids) == {tokenizer.eos_token_id, end}
    ids_T, counts_T = layout.tokens(conversation("Name it.", "It is red."))
    counted = [token for token, counts in zip(ids_T, counts_T, strict=True) if counts]
    assert tokenizer.decode(counted[: counted.index(end)]) == "It is red."


def test_a_response_ends_at_a_word_of_the_vocabulary() -> None:
    words = ["[UNK]", "<eos>", "Name", "it.", "It", "is", "red.", "<end>", "user", "assistant"]
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for m in messages %}{{ m.role }} {{ m.content }} <end> {% endfor %}"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", chat_template=template)
    assert set(ChatFormat(tokenizer).end(conversation("a")).ids) == {1, 7}


@pytest.mark.parametrize(
    ("template", "text", "expected"),
    [
        (CHATML, "It is red.<|im_end|>\n<|im_start|>user\nMore", ("It is red.", True)),
        (CHATML, " It is red", ("It is red", False)),
        (PLAIN, "It is red.END user", ("It is red.", True)),
        (PLAIN.replace("END", "\n"), "\nIt is red.\nuser: more", ("It is red.", True)),
        (PLAIN.replace("END", " END<eos>\n"), "It ENDs. END", ("It ENDs.", False)),  # at <eos>, which is not shown
        (PLAIN.replace("END", "<eos>"), "It is red. ", ("It is red.", False)),
    ],
)
def test_ordinary_text_ends_a_response(template: str, text: str, expected: tuple[str, bool]) -> None:
    tokenizer = tokenizer_with(template)  # <|im_end|> is several ordinary tokens
    assert end_of(tokenizer, frame_of(tokenizer, ASKED).after).cut(text) == expected


def test_a_response_with_the_text_that_ends_responses_is_refused() -> None:
    layout = ChatFormat(tokenizer_with(PLAIN.replace("END", "\n")))
    assert any(layout.tokens(conversation("a", "It is red.")).counts_T)
    with pytest.raises(DataError, match=r"rows:1: response 2 contains '\\n'"):
        layout.tokens(conversation("a", "b", "c", "It is\nred."))


@pytest.mark.parametrize(
    "template",
    [BODY, THINK, CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>{% endif %}"), CHATML],
    ids=["ignores", "think", "half", "whole"],
)
def test_the_header_of_a_response_belongs_to_the_prompt(template: str) -> None:
    tokenizer = tokenizer_with(template, "ordinary")
    layout, one = ChatFormat(tokenizer), conversation("Name it.", "It is red.")
    ids_T, counts_T = layout.tokens(one)
    prompt = layout.prompt(one.asked)
    assert ids_T[: len(prompt)] == prompt
    assert counts_T == [place >= len(prompt) for place in range(len(ids_T))]
    assert tokenizer.decode(ids_T[len(prompt) :]) == "It is red.<|im_end|>\n"


@pytest.mark.parametrize("header", ["", "<|user|>"])
def test_a_template_that_ends_no_turn_is_refused(header: str) -> None:
    template = "[gMASK]{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    tokenizer = tokenizer_with(template + "{% if add_generation_prompt %}<|assistant|>{% endif %}")
    with pytest.raises(ModelError, match="writes nothing after a response"):
        ChatFormat(tokenizer).tokens(conversation("a", "b"))
    assert ChatFormat(tokenizer).end(conversation("a")).ids == (tokenizer.eos_token_id,)


@pytest.mark.parametrize("template", ["{# nothing #}", "", "{% if messages | length > 9 %}x{% endif %}", "fixed<eos>"])
def test_a_template_that_renders_no_response_is_a_sentence(template: str) -> None:
    with pytest.raises((DataError, ModelError), match="template"):
        ChatFormat(tokenizer_with(template)).tokens(conversation("a", "b"))
    with pytest.raises((DataError, ModelError), match="template"):
        ChatFormat(tokenizer_with(template)).prompt(conversation("a"))


def test_a_template_that_writes_a_response_alone_has_no_prompt() -> None:
    template = "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}<eos>{% endif %}{% endfor %}"
    with pytest.raises(DataError, match="nothing before a response"):
        ChatFormat(tokenizer_with(template)).tokens(conversation("a", "b"))


MARKS = ("<s>", "</s>", "<|header|>", "<|body|>", "<|eot|>", "<think>", "</think>")
LLAMA_3 = (
    "{% for m in messages %}<|header|>{{ m.role }}<|body|>\n\n{{ m.content | trim }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|header|>assistant<|body|>\n\n{% endif %}"
)
VICUNA = (
    "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }} {% else %}"
    "ASSISTANT: {{ m.content }}</s>{% endif %}{% endfor %}"
)
MISTRAL = (
    "<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %}"
    "{{ m.content }}</s> {% endif %}{% endfor %}"
)
PHI_3 = (
    "{% for m in messages %}<|header|>{{ m.role }}\n{{ m.content }}<|eot|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|header|>assistant\n{% else %}</s>{% endif %}"
)
R1 = (
    "{% for m in messages %}<|header|>{{ m.role }}<|body|>{{ m.content.split('</think>')[-1] }}<|eot|>{% endfor %}"
    "{% if add_generation_prompt %}<|header|>assistant<|body|><think>\n{% endif %}"
)
ENDS_ONCE = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% if loop.last and m.role == 'assistant' %}</s>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)


@cache
def inner() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = ["What is it? It is red. And? [INST] Blue. USER: ASSISTANT: It\n\n\n\n"] * 5
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(text, trainer)
    return tokenizer


def chat(template: str) -> ChatFormat:
    tokenizer: Any = PreTrainedTokenizerFast(tokenizer_object=inner(), chat_template=template)
    tokenizer.add_special_tokens({"eos_token": "</s>", "additional_special_tokens": list(MARKS)})
    return ChatFormat(tokenizer)


def counted(layout: ChatFormat, found: Tokens) -> list[str]:
    """Return the texts that carry loss."""
    texts, ids = [], []
    for token, counts in (*zip(*found, strict=True), (0, False)):
        if counts:
            ids.append(token)
        elif ids:
            texts.append(layout.tokenizer.decode(ids))
            ids = []
    return texts


@pytest.mark.parametrize(
    ("template", "response"),
    [
        (LLAMA_3, "It is red.<|eot|>"),
        (VICUNA, " It is red.</s>"),
        (MISTRAL, "It is red.</s> "),
        (PHI_3, "It is red.<|eot|>\n</s>"),
    ],
)
def test_a_response_follows_what_a_model_is_asked(template: str, response: str) -> None:
    """In LLAMA_3, "\\n\\n" is one token at the end of the prompt, and two before a letter."""
    layout, one = chat(template), conversation("What is it?", "It is red.")
    found, prompt = layout.tokens(one), layout.prompt(one.asked)
    assert found.ids_T[: len(prompt)] == prompt
    assert found.counts_T == [place >= len(prompt) for place in range(len(found.ids_T))]
    assert counted(layout, found) == [response]
    again = layout.tokens(conversation("Or that?", "Blue.", "What is it?", "It is red."), "last")
    assert counted(layout, again) == [response]


@pytest.mark.parametrize(
    ("template", "responses"),
    [
        (MISTRAL, ["It is red.</s>", "Blue.</s> "]),
        (PHI_3, ["It is red.<|eot|>\n", "Blue.<|eot|>\n</s>"]),
        (VICUNA, [" It is red.</s>", " Blue.</s>"]),
    ],
)
def test_what_follows_the_end_of_a_response_may_change_when_more_follows(template: str, responses: list[str]) -> None:
    layout = chat(template)
    assert counted(layout, layout.tokens(conversation("What?", "It is red.", "And?", "Blue."))) == responses


def test_an_earlier_response_without_an_end_is_refused() -> None:
    layout = chat(ENDS_ONCE)
    assert counted(layout, layout.tokens(conversation("What?", "It is red.", "And?", "Blue."), "last"))
    with pytest.raises(DataError, match=r"rows:1: response 1 .*otherwise when more follows"):
        layout.tokens(conversation("What?", "It is red.", "And?", "Blue."))


def test_tokens_that_merge_with_an_earlier_prompt_are_named() -> None:
    with pytest.raises(DataError, match=r"rows:1: response 1 .*the tokenizer merges"):
        chat(LLAMA_3).tokens(conversation("What?", "It is red.", "And?", "Blue."))


def test_a_template_that_asks_otherwise_than_it_answers_says_how() -> None:
    with pytest.raises(DataError, match=r"rows:1: .*the chat template asks for a response with '<think>\\n'"):
        chat(R1).tokens(conversation("What?", "It is red."))


@pytest.mark.parametrize("token", ["<|eot|>", "</s>"])
def test_a_response_that_holds_the_token_that_ends_it_is_refused(token: str) -> None:
    chat(LLAMA_3).tokens(conversation(f"What is {token}?", "It is red."))
    with pytest.raises(DataError, match=f"rows:1: response 1 contains '{token.replace('|', '.')}'"):
        chat(LLAMA_3).tokens(conversation("What?", f"It is{token} red."))
    with pytest.raises(DataError, match="rows:1: the response contains '</s>'"):
        AlpacaFormat(chat(LLAMA_3).tokenizer).tokens(conversation("What?", "It is red.</s>"))


def test_a_blank_response_carries_no_loss() -> None:
    layout = chat(PHI_3)
    texts = ("What?", "", "And?", "Blue.")
    turns = [{"role": role, "content": text} for role, text in zip(("user", "assistant") * 2, texts, strict=True)]
    assert counted(layout, layout.tokens(conversation_of({"messages": turns}, "rows:1"))) == ["Blue.<|eot|>\n</s>"]
