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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from os.path import commonprefix
from typing import Any, Literal, NamedTuple

from emobench.core.errors import DataError, ModelError
from emobench.data.chat_templates import (
    Chat,
    End,
    Frame,
    end_of,
    frame_in,
    framing_chats,
    render_chats,
    text_ids,
)
from emobench.data.packing import RowNumbers
from emobench.data.rows import Row, numbers_in, shown, text_in

Role = Literal["system", "user", "assistant"]
ROLES = ("system", "user", "assistant")
FORMS = '"instruction" and "output", "prompt" and "completion", or "messages"'
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
    numbers: RowNumbers = field(default_factory=dict)
    """The numbers of its tokens, if the data have columns."""

    @property
    def asked(self) -> Conversation:
        """The conversation without the response at its end."""
        return Conversation(self.turns[:-1], self.input, self.where)


class Tokens(NamedTuple):
    """An example: its ids, and for each the number of its response, from 1, if the loss counts it, else 0."""

    ids_T: list[int]
    counts_T: list[int]


def conversation_of(row: Row, where: str, *, fields: Mapping[str, str] | None = None) -> Conversation:
    """Return the conversation of a row, which ends in a response.

    `fields` are those with numbers for its responses, by the names of their columns in a batch. They are fields of the
    row, or else of the assistant's messages. Raises DataError, which begins with `where`.
    """
    given = ""
    if "messages" in row:
        turns = _side(row, "messages", "user", where)
    elif "completion" in row:
        turns = [*_side(row, "prompt", "user", where), *_side(row, "completion", "assistant", where)]
    elif "output" in row:
        asked = instruction_of(row, where)
        turns, given = [*asked.turns, Turn("assistant", text_in(row, "output", where))], asked.input
    else:
        names = ", ".join(row) or "none"
        raise DataError(f"{where}: the row has no response; expected {FORMS}, and its fields are {names}.")
    if not turns or turns[-1].role != "assistant":
        raise DataError(f"{where}: the row has no response; its last message must be the assistant's.")
    if not fields:
        return Conversation(tuple(turns), given, where)
    answers = [message for message in row.get("messages", ()) if message["role"] == "assistant"]
    within = {}
    for name in fields.values():
        if any(name in message for message in answers):
            within[name] = [message.get(name) for message in answers]
    numbers = numbers_in({**within, **row}, fields, where)
    count = [turn.role for turn in turns].count("assistant")
    for column in numbers.values():
        if isinstance(column.value, list) and len(column.value) != count:
            raise DataError(
                f"{column.what} has {len(column.value)} items; expected {count}, one for each response: a number, or a "
                "list with one for each of its tokens."
            )
    return Conversation(tuple(turns), given, where, numbers)


def instruction_of(row: Mapping[str, Any], where: str) -> Conversation:
    """Return what a row in Alpaca's form asks, without a response."""
    given = ""
    if row.get("input") is not None:
        given = text_in(row, "input", where)
    return Conversation((Turn("user", text_in(row, "instruction", where)),), given, where)


def _side(row: Mapping[str, Any], field: str, role: Role, where: str) -> list[Turn]:
    """Return the turns in a field: a list of messages, or a text of one role."""
    if not isinstance(row.get(field), list):
        return [Turn(role, text_in(row, field, where))]
    turns = []
    for number, message in enumerate(row[field], 1):
        place = f"{where}: message {number} of {field}"
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise DataError(f"{place} is {shown(message)}; expected a role of {', '.join(ROLES)}.")
        turns.append(Turn(message["role"], text_in(message, "content", place)))
    return turns


class EndWithinError(DataError):
    """The text of a response has the token that ends responses. A training leaves such a row out."""


ALPACA = (
    "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:"
)
ALPACA_WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. Write a "
    "response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
)


@dataclass(frozen=True)
class AlpacaFormat:
    """The prompt of Stanford Alpaca (EMO paper, appendix C): one instruction, one response, which ends in EOS."""

    tokenizer: Any

    def prompt(self, asked: Conversation) -> list[int]:
        """Return the ids that a response follows, with one BOS if the tokenizer's texts begin with one."""
        return self._ids(self._text(asked))

    def end(self, asked: Conversation) -> End:
        """Return the end of a response to `asked`, in training and in generation alike."""
        eos = self.tokenizer.eos_token_id
        return End((), is_written=False) if eos is None else End((int(eos),))

    def tokens(self, conversation: Conversation, responses: Responses = "all") -> Tokens:
        """Return an example. Its responses carry the loss, with the token that ends each.

        Raises DataError for a conversation that the format cannot hold.
        """
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
        return Tokens(ids_T, [int(place >= len(prompt)) for place in range(len(ids_T))])

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


@dataclass(frozen=True)
class ChatFormat:
    """The tokenizer's chat template (see `chat_templates`). An input stands below its instruction."""

    tokenizer: Any

    def prompt(self, asked: Conversation) -> list[int]:
        return text_ids(self.tokenizer, self._frame(asked).prompt)

    def end(self, asked: Conversation) -> End:
        return end_of(self.tokenizer, self._frame(asked).after)

    def tokens(self, conversation: Conversation, responses: Responses = "all") -> Tokens:
        turns, messages, where = conversation.turns, self._messages(conversation), conversation.where
        answers = [place for place, turn in enumerate(turns) if turn.role == "assistant"]
        places = [place for place in answers if turns[place].text.strip()]
        if responses == "last":
            places = places[-1:]
        chats: list[Chat] = [(messages, False)]
        for place in places:
            chats += [(messages[: place + 1], False), *framing_chats(messages[:place])]
        text, *parts = render_chats(self.tokenizer, chats, where)
        frames = list(map(frame_in, parts[1::3], parts[2::3], repeat(where)))
        ids_T = self._ids(text, frames[-1].prompt)
        counts_T = [0] * len(ids_T)
        for number, (place, written, frame) in enumerate(zip(places, parts[::3], frames, strict=True), 1):
            name = f"{where}: response {number}"
            final = self._checked_end(frame, turns[place].text, name)
            begin = len(text_ids(self.tokenizer, frame.prompt))
            end = len(commonprefix([self._ids(written, frame.prompt), ids_T]))  # noqa: RUF071
            problem = ""
            if not written.startswith(frame.prompt):
                asked = frame.prompt.removeprefix(commonprefix([written, frame.prompt]))  # noqa: RUF071
                problem = f"the chat template asks for a response with {asked!r}, and does not write that before others"
            elif end < begin:
                problem = "the tokenizer merges it with the end of the prompt"
            elif not text.startswith(frame.prompt) or not final.is_in(self.tokenizer, ids_T[begin:end]):
                problem = "the chat template writes a conversation otherwise when more follows"
            if problem:
                raise DataError(
                    f"{name} would not follow the prompt of a model, or not end: {problem}. Take the last response "
                    "alone, or another template."
                )
            counts_T[begin:end] = [1 + answers.index(place)] * (end - begin)
        return Tokens(ids_T, counts_T)

    def _ids(self, text: str, prompt: str) -> list[int]:
        """Return the ids of a text, which begin with those of the prompt that it begins with.

        Its end would merge with the response in some tokenizers, and the model would be asked with other ids.
        """
        whole, before = text_ids(self.tokenizer, text), text_ids(self.tokenizer, prompt)
        if whole[: len(before)] == before or not text.startswith(prompt):
            return whole
        return before + text_ids(self.tokenizer, text[len(prompt) :])

    def _checked_end(self, frame: Frame, response: str, where: str) -> End:
        """Return what ends a response. Raises a UserError if the response holds that, or if the template ends none."""
        end = end_of(self.tokenizer, frame.after)
        if not end.is_written:
            raise ModelError(
                "The chat template writes nothing after a response, so that the model would never learn to end one. "
                "Give the tokenizer a template that ends each turn, such as with {{ eos_token }}, or take "
                "recipe.template=alpaca."
            )
        if end.by_text and end.text in response.strip():
            raise DataError(f"{where} contains {end.text!r}, which ends responses in the chat template; drop it.")
        if not end.by_text:
            _refuse_end_within(self.tokenizer, end.ids, response, where)
        return end

    def _frame(self, asked: Conversation) -> Frame:
        opened, answered = render_chats(self.tokenizer, framing_chats(self._messages(asked)), asked.where)
        return frame_in(opened, answered, asked.where)

    def _messages(self, conversation: Conversation) -> list[dict[str, str]]:
        messages = [{"role": turn.role, "content": turn.text} for turn in conversation.turns]
        if conversation.input:
            messages[0]["content"] += f"\n\n{conversation.input}"
        return messages


def _refuse_end_within(tokenizer: Any, ends: Sequence[int], response: str, where: str) -> None:
    """Raise EndWithinError for a response whose text has a token that ends responses."""
    for token in text_ids(tokenizer, response):
        if token in ends:
            raise EndWithinError(f"{where} contains {tokenizer.decode([token])!r}, which ends responses; drop the row.")


Format = AlpacaFormat | ChatFormat
FORMATS: Mapping[str, type[Format]] = {"alpaca": AlpacaFormat, "chat": ChatFormat}
"""Make ids of conversations, by the names of templates in recipes."""
