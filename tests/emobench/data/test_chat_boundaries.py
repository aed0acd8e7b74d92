"""Where responses begin and end in the templates of well-known models, with a tokenizer that merges over borders."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from emobench.core.errors import DataError
from emobench.data.conversations import AlpacaFormat, ChatFormat, Conversation, Tokens, Turn, conversation_of

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


def conversation(*texts: str) -> Conversation:
    roles = ("user", "assistant") * len(texts)
    return Conversation(tuple(Turn(role, text) for role, text in zip(roles, texts, strict=False)), where="rows:1")


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
    with pytest.raises(DataError, match=r"rows:1: .*otherwise when more follows: response 1"):
        layout.tokens(conversation("What?", "It is red.", "And?", "Blue."))


def test_tokens_that_merge_with_an_earlier_prompt_are_named() -> None:
    with pytest.raises(DataError, match=r"rows:1: the tokenizer merges .* response 1"):
        chat(LLAMA_3).tokens(conversation("What?", "It is red.", "And?", "Blue."))


def test_a_template_that_asks_otherwise_than_it_answers_says_how() -> None:
    with pytest.raises(DataError, match=r"rows:1: the chat template asks for a response with '<think>\\n'"):
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
