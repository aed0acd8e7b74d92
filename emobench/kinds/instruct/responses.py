"""Responses of a model to instructions: prompts, where a response ends, the file that keeps them, and their scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emobench.core.errors import ConfigError, DataError, UnknownNameError
from emobench.core.settings import build
from emobench.data.chat_templates import End
from emobench.data.conversations import FORMATS, Conversation, Turn
from emobench.inference.decoding.request import Continuation, Decoding
from emobench.kinds.instruct.instructions import Instruction, Instructions
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import UNFINISHED, Journal
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.metrics.rouge import rouge
from emobench.tasks.scores import Measure, Score

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
    """Write the responses into `folder`, in the order of the instructions.

    Batches are kept in a journal as they end; an interrupted attempt is continued to the same file.
    """
    from emobench.inference.decoding.continuations import iter_continuations
    from emobench.models.head import token_count

    asked = asked_instructions(data, rules)
    end = response_end(subject.tokenizer, rules.template)
    journal = Journal(folder / UNFINISHED)
    responses: dict[str, Response] = {}
    for line in journal.read():
        kept = _parse(line, UNFINISHED)
        responses[kept.id] = kept
    done = {index for index, one in enumerate(asked) if one.id in responses}
    with subject.work(f"answer {task}", "instructions") as progress:
        for batch in iter_continuations(
            subject.files or subject.model,
            prompt_ids(asked, subject.tokenizer, rules.template),
            prompt_keys=[one.id for one in asked],
            decoding=Decoding(rule=rules.sampling, length=rules.max_new_tokens),
            ends=end.ids,
            vocabulary=token_count(subject.tokenizer),
            done=frozenset(done),
        ):
            new = {}
            for index, (continuation,) in batch:
                if index not in done:
                    response = _response(asked[index], continuation, subject.tokenizer, end)
                    new[response.id] = response
                    done.add(index)
            journal.append(map(_line, new.values()))
            responses |= new
            progress(len(done), len(asked))
    (folder / RESPONSES).write_text("".join(f"{_line(responses[one.id])}\n" for one in asked), encoding="utf-8")


def read_responses(path: Path) -> list[Response]:
    """Read the file of responses; a line without one is a DataError with file and line."""
    with path.open(encoding="utf-8") as file:
        return [_parse(line, f"{path}:{number}") for number, line in enumerate(file, start=1)]


def _response(one: Instruction, continuation: Continuation, tokenizer: Any, end: End) -> Response:
    ids = list(continuation.ids)
    text, ended = end.cut(_text(ids, tokenizer))
    while ended and len(_text(ids, tokenizer).strip()) > len(text):
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


def _text(ids: Sequence[int], tokenizer: Any) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def _line(response: Response) -> str:
    return json.dumps(asdict(response), ensure_ascii=False)


def _parse(line: str, where: str) -> Response:
    try:
        return build(Response, json.loads(line), where)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: expected one JSON object a line, got {line[:40]!r} ({error}).") from None
    except (ConfigError, UnknownNameError) as error:
        raise DataError(f"{error} The file holds no responses, or was altered; generate again.") from None


def reference_scores(responses: Sequence[Response]) -> Scored:
    """Return ROUGE-L, the share of responses that ended by themselves, and the mean length in tokens."""
    ids = [one.id for one in responses]
    texts, references = [one.text for one in responses], [one.reference for one in responses]

    def overlap() -> dict[str, Score]:
        return rouge([texts], references, ids, variants=("rougeL",))

    scored = Scored()
    scored.add(("rougeL",), overlap)
    scored.scores["ended"] = mean_by_prompt([[one.ended for one in responses]], ids, ENDED)
    scored.scores["response_tokens"] = mean_by_prompt([[len(one.ids) for one in responses]], ids, TOKENS)
    return scored
