"""Responses of a model to instructions: prompts, where a response ends, the file that keeps them, and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emobench.data.chat_templates import End
from emobench.data.conversations import FORMATS, Conversation, Turn
from emobench.inference.decoding.request import Continuation, Decoding
from emobench.kinds.instruct.instructions import Instruction, Instructions
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.rows import generate_rows, write_rows
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.metrics.rouge import rouge
from emobench.tasks.scores import Measure

RESPONSES = "samples.jsonl"
ENDED = Measure(
    None,
    "fraction",
    secondary=True,
    title="Ended responses",
    definition="The share of responses that the model ended by itself, before the largest number of tokens.",
)
TOKENS = Measure(
    None,
    "tokens",
    secondary=True,
    title="Response length",
    definition="The mean number of tokens of a response, by the model's own tokenizer.",
)


@dataclass(frozen=True, kw_only=True)
class Response:
    """The answer of a model to one instruction."""

    id: str
    instruction: str
    input: str
    reference: str
    ids: list[int]
    """Without the token that ended it."""
    text: str
    """Without special tokens, and without spaces at both ends."""
    ended: bool
    """By itself, before max_new_tokens."""

    @property
    def key(self) -> tuple[str, int]:
        return self.id, 0


def asked_instructions(data: Instructions, rules: InstructProtocol) -> Sequence[Instruction]:
    """Return the instructions that are answered."""
    return data.rows[: rules.limit]


def prompt_ids(asked: Sequence[Instruction], tokenizer: Any, template: str) -> list[list[int]]:
    """Return the tokens of each prompt: those that a response follows in training, too."""
    layout = FORMATS[template](tokenizer)
    return [layout.prompt(one.asked) for one in asked]


def response_end(tokenizer: Any, template: str) -> End:
    """Return the end of a response, which is that of training: EOS, and the text after it in a chat template."""
    return FORMATS[template](tokenizer).end(Conversation((Turn("user", "a"),)))


def generate_responses(subject: Subject, task: str, rules: InstructProtocol, data: Instructions, folder: Path) -> None:
    """Write the responses into `folder`, in the order of the instructions."""
    asked = asked_instructions(data, rules)
    end = response_end(subject.tokenizer, rules.template)
    prompts = {}
    for one, ids in zip(asked, prompt_ids(asked, subject.tokenizer, rules.template), strict=True):
        prompts[one.id] = ids
    decoding = Decoding(rule=rules.sampling, length=rules.max_new_tokens)

    def rows_of(index: int, given: Sequence[Continuation]) -> list[Response]:
        return [_response(asked[index], given[0], subject.tokenizer, end)]

    given = (prompts, decoding, rows_of, f"answer {task}", "instructions", end.ids)
    write_rows(folder / RESPONSES, generate_rows(subject, Response, folder, *given))


def _response(one: Instruction, continuation: Continuation, tokenizer: Any, end: End) -> Response:
    def decoded() -> str:
        return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    ids = list(continuation.ids)
    text, ended = end.cut(decoded())
    while ended and len(decoded().strip()) > len(text):
        ids.pop()  # the text that ended it
    return Response(
        id=one.id,
        instruction=one.text,
        input=one.asked.input,
        reference=one.reference,
        ids=ids,
        text=text,
        ended=continuation.ended or ended,
    )


def reference_scores(responses: Sequence[Response]) -> Scored:
    """Return ROUGE-L, the share of responses that ended by themselves, and the mean length in tokens."""
    ids = [one.id for one in responses]
    scored = Scored()
    texts = [one.text for one in responses]
    references = [one.reference for one in responses]
    scored.add(("rougeL",), lambda: rouge([texts], references, ids, variants=("rougeL",)))
    scored.scores["ended"] = mean_by_prompt([[one.ended for one in responses]], ids, ENDED)
    scored.scores["response_tokens"] = mean_by_prompt([[len(one.ids) for one in responses]], ids, TOKENS)
    return scored
