"""Conversations to train on and to answer: rows of three forms, and turns as token ids with what the loss counts.

    {"instruction": ..., "input": ..., "output": ...}      Alpaca; the input may be empty or absent
    {"prompt": ..., "completion": ...}                      texts, or lists of messages
    {"messages": [{"role": ..., "content": ...}, ...]}      of the roles system, user and assistant

A format makes ids of turns: `AlpacaFormat`, or `ChatFormat` with the tokenizer's own template. Its `prompt` is what a
model is given to answer, in training and in evaluation alike: an example is the ids of the prompt, then those of the
response, and each example is checked for it.

Legend: T tokens of an example.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from emobench.core.errors import DataError, ModelError
from emobench.data.chat_templates import (
    ChatRefusedError,
    End,
    Frame,
    end_of,
    frame_in,
    framing_chats,
    render_chats,
    text_ids,
)

Role = Literal["system", "user", "assistant"]
ROLES = ("system", "user", "assistant")
FORMS = '"instruction" and "output", "prompt" and "completion", or "messages"'
LARGEST_WEIGHT = 1_000_000
Responses = Literal["all", "last"]
"""Which turns of the assistant the loss counts."""


class Turn(NamedTuple):
    """What one side says."""

    role: Role
    text: str


@dataclass(frozen=True)
class Conversation:
    """Turns, and what the instruction is about where the data has it in a field of its own."""

    turns: tuple[Turn, ...]
    input: str = ""
    where: str = ""
    """The file and line of the row, for errors."""
    weight: float = 1.0
    """Its weight in the loss."""

    @property
    def asked(self) -> Conversation:
        """The conversation without the response at its end."""
        return Conversation(self.turns[:-1], self.input, self.where)


class Tokens(NamedTuple):
    """An example: its ids, and for each whether the loss counts it."""

    ids_T: list[int]
    counts_T: list[bool]


def conversation_of(row: Mapping[str, Any], where: str, *, weights: str = "") -> Conversation:
    """Return the conversation of a row, which ends in a response. `weights` names the field with its weight, if any.

    Raises DataError, which begins with `where`.
    """
    given = ""
    if "messages" in row:
        turns = _messages(row["messages"], "messages", where)
    elif "completion" in row:
        turns = [*_side(row, "prompt", "user", where), *_side(row, "completion", "assistant", where)]
    elif "output" in row:
        asked = instruction_of(row, where)
        turns, given = [*asked.turns, Turn("assistant", _text(row, "output", where))], asked.input
    else:
        fields = ", ".join(row) or "none"
        raise DataError(f"{where}: the row has no response; expected {FORMS}, and its fields are {fields}.")
    if turns[-1].role != "assistant" or not turns[-1].text.strip():
        raise DataError(f"{where}: the row has no response; its last message must be the assistant's, with a text.")
    return Conversation(tuple(turns), given, where, _weight(row, weights, where) if weights else 1.0)


def instruction_of(row: Mapping[str, Any], where: str) -> Conversation:
    """Return what a row in Alpaca's form asks, without a response."""
    given = row.get("input")
    if given is not None and not isinstance(given, str):
        raise DataError(f'{where}: "input" must be a text, got {_shown(given)}.')
    return Conversation((Turn("user", _text(row, "instruction", where)),), given or "", where)


def _side(row: Mapping[str, Any], field: str, role: Role, where: str) -> list[Turn]:
    if isinstance(row.get(field), list):
        return _messages(row[field], field, where)
    return [Turn(role, _text(row, field, where))]


def _messages(found: Any, field: str, where: str) -> list[Turn]:
    if not isinstance(found, list) or not found:
        raise DataError(f'{where}: "{field}" must be a list of messages, got {_shown(found)}.')
    turns = []
    for number, message in enumerate(found, 1):
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise DataError(
                f"{where}: message {number} of {field} has the role {_shown(role)}; expected one of {known}."
            )
        turns.append(Turn(role, _text(message, "content", f"{where}: message {number} of {field}")))
    return turns


def _text(row: Mapping[str, Any], field: str, where: str) -> str:
    value = row.get(field)
    if not isinstance(value, str):
        raise DataError(f'{where}: "{field}" must be a text, got {_shown(value)}.')
    return value


def _weight(row: Mapping[str, Any], field: str, where: str) -> float:
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST_WEIGHT:
        raise DataError(
            f'{where}: the weight "{field}" is {_shown(value)}; expected a number from 0 to {LARGEST_WEIGHT:,}.'
        )
    return float(value)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


class EndWithinError(DataError):
    """The text of a response has the token that ends responses. A training leaves such a row out."""


@dataclass(frozen=True)
class Format(ABC):
    """How a tokenizer's model is asked, and how its responses end."""

    tokenizer: Any

    @abstractmethod
    def prompt(self, asked: Conversation) -> list[int]:
        """Return the ids of what a response follows, with one BOS if the tokenizer's texts begin with one."""

    @abstractmethod
    def end(self, asked: Conversation) -> End:
        """Return what ends a response to `asked`, in training and in generation alike."""

    @abstractmethod
    def tokens(self, conversation: Conversation, responses: Responses = "all") -> Tokens:
        """Return an example. Its responses carry the loss, with the token that ends each.

        Raises DataError for a conversation that the format cannot hold.
        """


ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:"
)
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
)


class AlpacaFormat(Format):
    """The prompt of Stanford Alpaca (EMO paper, appendix C): one instruction, one response, which ends in EOS."""

    def prompt(self, asked: Conversation) -> list[int]:
        return self._ids(self._text(asked))

    def end(self, asked: Conversation) -> End:
        eos = self.tokenizer.eos_token_id
        return End((), is_written=False) if eos is None else End((int(eos),))

    def tokens(self, conversation: Conversation, responses: Responses = "all") -> Tokens:
        text, response = self._text(conversation.asked), conversation.turns[-1].text
        prompt, whole = self._ids(text), self._ids(text + response)
        end = self.end(conversation.asked)
        if not end.is_written:
            kind = type(self.tokenizer).__name__
            raise ModelError(f"The tokenizer {kind} has no EOS token, which ends responses; give it an eos_token.")
        _refuse_end_within(self.tokenizer, end.ids, response, f"{conversation.where}: the response")
        if whole[: len(prompt)] != prompt:
            # The end of the prompt would merge with the response, and the model would be asked with other ids.
            whole = prompt + self._encoded(response, add_special_tokens=False)
        ids_T = [*whole, *end.ids]
        return Tokens(ids_T, [place >= len(prompt) for place in range(len(ids_T))])

    def _ids(self, text: str) -> list[int]:
        """Return the ids of a text, without the EOS that some tokenizers add."""
        ids = self._encoded(text)
        return ids[:-1] if len(ids) > 1 and ids[-1] == self.tokenizer.eos_token_id else ids

    def _encoded(self, text: str, **options: Any) -> list[int]:
        try:
            return self.tokenizer(text, verbose=False, **options)["input_ids"]
        except Exception as error:  # tokenizers raises no class of its own
            raise ModelError(
                f"The tokenizer {type(self.tokenizer).__name__} cannot read the Alpaca prompt ({error}). Take a model "
                "whose tokenizer reads any text."
            ) from None

    def _text(self, asked: Conversation) -> str:
        if [turn.role for turn in asked.turns] != ["user"]:
            roles = ", ".join(turn.role for turn in asked.turns) or "nothing"
            raise DataError(
                f"{asked.where}: the Alpaca prompt takes one instruction before the response; here is {roles}. Take "
                "the tokenizer's chat template."
            )
        template = ALPACA_WITH_INPUT if asked.input else ALPACA
        return template.format(instruction=asked.turns[0].text, input=asked.input)


class ChatFormat(Format):
    """The tokenizer's chat template (see `chat_templates`). An input stands below its instruction."""

    def prompt(self, asked: Conversation) -> list[int]:
        return text_ids(self.tokenizer, self._frame(asked).prompt)

    def end(self, asked: Conversation) -> End:
        return end_of(self.tokenizer, self._frame(asked).after)

    def tokens(self, conversation: Conversation, responses: Responses = "all") -> Tokens:
        turns, messages = conversation.turns, self._messages(conversation)
        places = [place for place, turn in enumerate(turns) if turn.role == "assistant"]
        filled = [place for place in places if turns[place].text.strip()]
        counted = filled if responses == "all" else filled[-1:]
        chats: list[tuple[Sequence[Mapping[str, str]], bool]] = [(messages, False)]
        for place in counted:
            chats += [(messages[: place + 1], False), *framing_chats(messages[:place])]
        text, *parts = self._render(chats, conversation.where)
        frames = [
            self._frame_in(opened, answered, conversation.where)
            for opened, answered in zip(parts[1::3], parts[2::3], strict=True)
        ]
        ids_T = self._ids(text, frames[-1].prompt)
        counts_T = [False] * len(ids_T)
        for place, written, frame in zip(counted, parts[::3], frames, strict=True):
            self._check_prompt(text, written, frame, conversation.where)
            name = f"response {1 + places.index(place)}"
            begin, until = len(text_ids(self.tokenizer, frame.prompt)), self._ids(written, frame.prompt)
            end = _common(until, ids_T)
            if end < begin:
                raise DataError(
                    f"{conversation.where}: the tokenizer merges the end of the prompt with the beginning of {name}, "
                    "which would not follow what a model is asked. Take the last response alone, or another template."
                )
            self._check_response(frame, turns[place].text, f"{conversation.where}: {name}")
            if not self._ends(frame, ids_T[begin:end]):
                changed = "the chat template writes the beginning of a conversation otherwise when more follows"
                if end == len(until):
                    changed = "the chat template ends another response otherwise"
                raise DataError(
                    f"{conversation.where}: {changed}: {name} would not follow what a model is asked, or not end. Take "
                    "the last response alone, or another template."
                )
            counts_T[begin:end] = [True] * (end - begin)
        return Tokens(ids_T, counts_T)

    def _ids(self, text: str, prompt: str) -> list[int]:
        """Return the ids of a text, which begin with those of the prompt that it begins with.

        Its end would merge with the response in some tokenizers, and the model would be asked with other ids.
        """
        whole, before = text_ids(self.tokenizer, text), text_ids(self.tokenizer, prompt)
        if whole[: len(before)] == before or not text.startswith(prompt):
            return whole
        return before + text_ids(self.tokenizer, text[len(prompt) :])

    def _check_prompt(self, text: str, written: str, frame: Frame, where: str) -> None:
        """Raise DataError unless a conversation has the prompt of a response before it."""
        if not written.startswith(frame.prompt):
            asked = frame.prompt[_common(written, frame.prompt) :]
            raise DataError(
                f"{where}: the chat template asks for a response with {asked!r}, which it does not write before the "
                "responses of a conversation: they would not follow what a model is asked. Take another template."
            )
        if not text.startswith(frame.prompt):
            raise DataError(
                f"{where}: the chat template writes the beginning of a conversation otherwise when more follows, so "
                "that a response would not follow what a model is asked. Take the last response alone, or another "
                "template."
            )

    def _check_response(self, frame: Frame, response: str, where: str) -> None:
        """Raise a UserError if a response holds what ends responses, or if the template ends none."""
        end = end_of(self.tokenizer, frame.after)
        if not end.is_written:
            raise ModelError(
                "The chat template writes nothing after a response, so that the model would never learn to end one. "
                "Give the tokenizer a template that ends each turn, such as with {{ eos_token }}, or take "
                "recipe.template=alpaca."
            )
        if end.by_text and end.text in response.strip():
            raise DataError(
                f"{where} contains {end.text!r}, with which the chat template ends responses, so that the model could "
                "not tell where one ends. Take a template that ends a turn with a token, or drop the row."
            )
        if not end.by_text:
            _refuse_end_within(self.tokenizer, end.ids, response, where)

    def _ends(self, frame: Frame, counted: Sequence[int]) -> bool:
        """Return whether the counted tokens of a response hold what ends responses."""
        end = end_of(self.tokenizer, frame.after)
        return end.text in self.tokenizer.decode(counted) if end.by_text else not {*end.ids}.isdisjoint(counted)

    def _frame(self, asked: Conversation) -> Frame:
        opened, answered = self._render(framing_chats(self._messages(asked)), asked.where)
        return self._frame_in(opened, answered, asked.where)

    def _frame_in(self, opened: str, answered: str, where: str) -> Frame:
        try:
            return frame_in(opened, answered)
        except ChatRefusedError as error:
            raise DataError(f"{where}: {error}") from None

    def _render(self, chats: Sequence[tuple[Sequence[Mapping[str, str]], bool]], where: str) -> list[str]:
        if not self.tokenizer.chat_template:
            kind = type(self.tokenizer).__name__
            raise ModelError(f"The tokenizer {kind} has no chat template. Take the Alpaca prompt, or a chat model.")
        try:
            return render_chats(self.tokenizer, chats)
        except ChatRefusedError as error:
            raise DataError(f"{where}: {error}") from None

    def _messages(self, conversation: Conversation) -> list[dict[str, str]]:
        messages = [{"role": turn.role, "content": turn.text} for turn in conversation.turns]
        if conversation.input:
            messages[0]["content"] += f"\n\n{conversation.input}"
        return messages


def _common(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return the number of equal items with which both begin."""
    pairs = zip(a, b, strict=False)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(a), len(b)))


def _refuse_end_within(tokenizer: Any, ends: Sequence[int], response: str, where: str) -> None:
    """Raise EndWithinError for a response whose text has a token that ends responses."""
    found = next((token for token in text_ids(tokenizer, response) if token in ends), None)
    if found is not None:
        raise EndWithinError(
            f"{where} contains {tokenizer.decode([found])!r}, which ends responses: the model would learn to stop "
            "there. Remove it from the text, or drop the row."
        )


FORMATS: Mapping[str, type[Format]] = {"alpaca": AlpacaFormat, "chat": ChatFormat}
