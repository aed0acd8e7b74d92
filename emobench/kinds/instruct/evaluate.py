"""Tasks of kind `instruct`, where data and models are read: loading, checks, responses and scores."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emobench.data.rows import local_file
from emobench.errors import ConfigError
from emobench.kinds.auxiliary import UnloadedModel
from emobench.kinds.cost import Cost, EvaluatedModel, Resources, least
from emobench.kinds.instruct.instructions import SOURCES, Instructions, load_instructions
from emobench.kinds.instruct.responses import (
    RESPONSES,
    asked_instructions,
    generate_responses,
    prompt_ids,
    read_responses,
)
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.instruct.score import reference_scores
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import require_count
from emobench.kinds.views import WrittenText
from emobench.tasks.spec import Task

BATCH = 16_384
"""Tokens of a batch of responses, prompts included, for the estimate."""
PROMPT_TOKENS = 120
"""Of a prompt, for the estimate, where no tokenizer is here: an instruction in the Alpaca prompt."""


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Instructions:
    return load_instructions(task.corpus, data_dirs=data_dirs, offline=offline)


def find(task: Task, resources: Resources) -> Instructions | None:
    name, dirs = task.corpus, resources.data_dirs

    def read() -> Instructions:
        return load_instructions(name, data_dirs=dirs, offline=True)

    if name not in SOURCES or local_file(name, "test", dirs):
        return read()
    return resources.data(f"data set {name}", read, SOURCES[name].repo)


def cost(task: Task, resources: Resources, model: EvaluatedModel) -> Cost:
    """Estimate the tokens of prompts, and of responses that all have the full length."""
    rules, data = task.protocol_as(InstructProtocol), find(task, resources)
    known = SOURCES[task.corpus].rows if data is None else len(data)
    count = least(rules.limit, known) or 0
    prompts = count * PROMPT_TOKENS
    if data is not None and model.base is not None:
        prompts = sum(map(len, prompt_ids(asked_instructions(data, rules), model.base.tokenizer, rules.template)))
    tokens = prompts + count * rules.max_new_tokens
    return Cost(count, tokens, steps=-(-tokens // BATCH) * rules.max_new_tokens, batch_tokens=BATCH)


def check(task: Task, data: Instructions, model: UnloadedModel) -> None:
    rules = task.protocol_as(InstructProtocol)
    prompts = prompt_ids(asked_instructions(data, rules), model.tokenizer, rules.template)
    longest = max(map(len, prompts))
    # The last token of a response is not read.
    if model.context is not None and longest + rules.max_new_tokens - 1 > model.context:
        room = model.context - longest + 1
        way = f"set instruct.max_new_tokens={room} or less" if room > 0 else "take a model with a longer context"
        raise ConfigError(
            f"Task {task.name}: a prompt of {longest} tokens with {rules.max_new_tokens} for the response is longer "
            f"than the {model.context} that {model.name} reads; {way}."
        )


def generate(subject: Subject, task: Task, data: Instructions, folder: Path) -> None:
    generate_responses(subject, task.name, task.protocol_as(InstructProtocol), data, folder)


def score(subject: Subject, task: Task, data: Instructions, folder: Path) -> Scored:
    rules = task.protocol_as(InstructProtocol)
    responses = read_responses(folder / RESPONSES)
    require_count(folder / RESPONSES, "responses", len(responses), len(asked_instructions(data, rules)))
    return reference_scores(responses)


def written_texts(path: Path) -> list[WrittenText]:
    """Return the responses in a file, each after its instruction."""
    return [
        WrittenText(
            prompt=one.id,
            sample=0,
            prefix=f"{one.instruction}\n\n{one.input}" if one.input else one.instruction,
            human=one.reference,
            generated=one.text,
            ended=one.ended,
        )
        for one in read_responses(path)
    ]
