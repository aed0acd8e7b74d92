"""Tasks of kind `instruct`, where data and models are read: loading, checks, responses and scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from emobench.core.errors import ConfigError
from emobench.core.reading import json_rows
from emobench.data.sampling_units import joined_units, text_digest
from emobench.inference.vllm.package import check_backend
from emobench.kinds.cost import Cost
from emobench.kinds.instruct.instructions import Instructions, load_instructions
from emobench.kinds.instruct.judged import (
    GRADE,
    JUDGEMENTS,
    MEASURES,
    PROMPT_TOKENS,
    WIN_RATE,
    check_judge,
    expected_requests,
    judge_scores,
    unread_pairs,
)
from emobench.kinds.instruct.judging.judge import JUDGES, GradeJudge, Pair
from emobench.kinds.instruct.responses import (
    RESPONSES,
    Response,
    asked_instructions,
    generate_responses,
    prompt_ids,
    reference_scores,
)
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Scored, Subject
from emobench.kinds.journal import require_count
from emobench.kinds.rows import read_rows
from emobench.kinds.views import TestSize, WrittenText
from emobench.metrics.rouge import ROUGE
from emobench.models.model import Model
from emobench.tasks.scores import Measure
from emobench.tasks.spec import Task

BATCH = 16_384
"""Tokens of a batch of responses, prompts included, for the estimate."""
NO_JUDGE = "No judge was chosen: add --set judge.name=NAME, such as alpaca-eval (see `emobench judges list`)."


def load(task: Task, *, data_dirs: Sequence[Path], offline: bool) -> Instructions:
    return load_instructions(task.corpus, data_dirs=data_dirs, offline=offline)


def cost(task: Task, data: Instructions | None, model: Model) -> Cost:
    """Estimate the tokens of prompts, of responses that all have the full length, and of a judge's requests."""
    rules = task.protocol_as(InstructProtocol)
    pairs = unread_pairs(task.corpus, rules.limit)
    unknown = 2 * rules.max_new_tokens
    prompts = None
    if data is not None:
        asked = asked_instructions(data, rules)
        unknown = rules.max_new_tokens
        pairs = [Pair(one.text, "?", one.reference, one.asked.input) for one in asked]
        if model.is_local:
            prompts = sum(map(len, prompt_ids(asked, model.tokenizer, rules.template)))
    count = len(pairs)
    tokens = (count * PROMPT_TOKENS if prompts is None else prompts) + count * rules.max_new_tokens
    responses = Cost(count, tokens, steps=-(-tokens // BATCH) * rules.max_new_tokens, batch_tokens=BATCH)
    if not rules.judge.used:
        return responses
    judge = JUDGES.load(rules.judge.name).plugin
    requests = expected_requests(rules.judge, judge, pairs, unknown=unknown)
    if rules.judge.backend == "local":
        return replace(responses, auxiliary_tokens={"judge": requests.read + requests.written})
    return replace(responses, requests=requests)


def metrics(task: Task) -> dict[str, Measure | str]:
    """Return the measures of the responses, and of the judge's verdicts or why there are none."""
    rule = task.protocol_as(InstructProtocol).judge
    judged: dict[str, Measure | str] = {WIN_RATE: NO_JUDGE}
    if rule.used:
        name = GRADE if isinstance(JUDGES.load(rule.name).plugin, GradeJudge) else WIN_RATE
        judged = {name: MEASURES[name]}
    return {**judged, "rougeL": ROUGE["rougeL"]}


def test_size(task: Task, metric: str, data: Instructions | None) -> TestSize:
    """Return the instructions; equal ones are one unit."""
    rules = task.protocol_as(InstructProtocol)
    if data is None:
        return TestSize(len(unread_pairs(task.corpus, rules.limit)) or None)
    asked = asked_instructions(data, rules)
    return TestSize(len(asked), len({text_digest(one.text, one.asked.input) for one in asked}))


def check(task: Task, data: Instructions, model: Model) -> None:
    rules = task.protocol_as(InstructProtocol)
    check_backend(rules.backend, model, "instruct.backend")
    prompts = prompt_ids(asked_instructions(data, rules), model.tokenizer, rules.template)
    longest = max(map(len, prompts))
    # The last token of a response is not read, but vLLM has a position for it.
    unread = rules.backend != "vllm"
    if model.context is not None and longest + rules.max_new_tokens - unread > model.context:
        raise ConfigError(
            f"Task {task.name}: a prompt of {longest} tokens with {rules.max_new_tokens} for the response is "
            f"longer than the {model.context} that {model.name} reads; set instruct.max_new_tokens="
            f"{model.context - longest + unread} or less, or take a model with a longer context."
        )
    if rules.judge.used:
        check_judge(rules.judge, JUDGES.load(rules.judge.name).plugin, model)


def generate(subject: Subject, task: Task, data: Instructions, folder: Path) -> None:
    generate_responses(subject, task.name, task.protocol_as(InstructProtocol), data, folder)


def score(subject: Subject, task: Task, data: Instructions, folder: Path) -> Scored:
    rules = task.protocol_as(InstructProtocol)
    responses = read_rows(Response, folder / RESPONSES)
    require_count(folder / RESPONSES, "responses", len(responses), len(asked_instructions(data, rules)))
    scored = reference_scores(responses)
    if rules.judge.used:
        judged = judge_scores(subject, rules, task.name, responses)
        scored.scores |= judged.scores
        scored.missing |= judged.missing
        scored.files |= judged.files
    else:
        scored.missing[WIN_RATE] = NO_JUDGE
    units = joined_units({one.id: [text_digest(one.instruction, one.input)] for one in responses})
    for name, value in scored.scores.items():
        scored.scores[name] = replace(value, units=units)
    return scored


def preferences(folder: Path) -> Mapping[str, float]:
    """Return how much the judge prefers each response to the reference; empty if it gave each response a grade."""
    preferences = {}
    path = folder / JUDGEMENTS
    for _, judged in json_rows(path) if path.is_file() else ():
        if judged.get("preference") is not None:
            preferences[judged["id"]] = judged["preference"]
    return preferences


def written_texts(path: Path) -> list[WrittenText]:
    """Return the responses in a file, each after its instruction."""
    texts = []
    for one in read_rows(Response, path):
        asked = Pair(one.instruction, one.text, one.reference, one.input).asked()
        texts.append(
            WrittenText(prompt=one.id, sample=0, prefix=asked, human=one.reference, generated=one.text, ended=one.ended)
        )
    return texts
