"""Counts, limits and identities of tasks of kind `instruct`, each against a calculation by hand."""

from __future__ import annotations

import hashlib
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.inference.decoding.request import Continuation
from emobench.kinds.cost import Requests
from emobench.kinds.instruct.instructions import SOURCES, load_instructions
from emobench.kinds.instruct.judged import MEASURES
from emobench.kinds.instruct.responses import (
    RESPONSES,
    Response,
    _response,
    generate_responses,
    prompt_ids,
    read_responses,
    reference_scores,
    response_end,
)
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Subject
from emobench.kinds.journal import UNFINISHED, Journal
from emobench.metrics.rouge import ROUGE
from emobench.registry import find_task, load_kind
from emobench.tasks.scores import SECONDARY

TASK = "instructions"
MISSING: Any = SimpleNamespace(is_local=False, bytes_per_token=4.0)
"""A model whose files are not on this machine."""


def runtime() -> Any:
    return load_kind("instruct").runtime


def task_of(**overrides: Any) -> Any:
    return find_task(TASK, overrides=overrides)


@pytest.fixture
def model(byte_model: Path) -> Any:
    return SimpleNamespace(
        name="bytes", is_local=True, tokenizer=AutoTokenizer.from_pretrained(byte_model), context=1024
    )


def test_a_prompt_and_all_but_the_last_token_of_its_response_fit_the_context(model: Any, asked: Path) -> None:
    data = load_instructions(TASK, data_dirs=[asked], offline=True)
    longest = max(len(ids) for ids in prompt_ids(data.rows, model.tokenizer, "alpaca"))
    room = 1024 - longest + 1
    runtime().check(task_of(max_new_tokens=room), data, model)
    with pytest.raises(ConfigError, match=rf"prompt of {longest} tokens with {room + 1} .* set .*={room} or less"):
        runtime().check(task_of(max_new_tokens=room + 1), data, model)
    model.context = longest  # the first token of a response is not read
    runtime().check(task_of(max_new_tokens=1), data, model)
    with pytest.raises(ConfigError, match=r"set instruct\.max_new_tokens=1 or less"):
        runtime().check(task_of(max_new_tokens=2), data, model)
    model.context = longest - 1
    with pytest.raises(ConfigError, match="take a model with a longer context"):
        runtime().check(task_of(max_new_tokens=1), data, model)
    model.context = None
    runtime().check(task_of(max_new_tokens=10_000), data, model)


def test_vllm_needs_a_position_for_the_last_token(model: Any, asked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emobench.kinds.instruct.evaluate.check_backend", lambda *given: None)  # it is not installed
    data = load_instructions(TASK, data_dirs=[asked], offline=True)
    longest = max(len(ids) for ids in prompt_ids(data.rows, model.tokenizer, "alpaca"))
    runtime().check(task_of(backend="vllm", max_new_tokens=1024 - longest), data, model)
    with pytest.raises(ConfigError, match=f"set instruct.max_new_tokens={1024 - longest} or less"):
        runtime().check(task_of(backend="vllm", max_new_tokens=1025 - longest), data, model)


def test_the_metrics_follow_from_the_judge() -> None:
    rouge = {"rougeL": ROUGE["rougeL"]}
    for name, metric in (("pandalm", "win_rate"), ("mt-bench", "grade")):
        assert runtime().measures(task_of(judge={"name": name})) == {metric: MEASURES[metric]} | rouge
    found = runtime().measures(task_of())
    assert (list(found), found["rougeL"]) == (["win_rate", "rougeL"], ROUGE["rougeL"])
    assert "No judge was chosen" in found["win_rate"]


def test_instructions_are_local_or_a_known_download(tmp_path: Path) -> None:
    def load(task: Any) -> Any:
        return runtime().load(task, data_dirs=[tmp_path], offline=True)

    published = find_task("alpaca_eval/open-platypus")
    with pytest.raises(Missing) as missing:
        load(published)
    assert (missing.value.item, missing.value.source) == ("data set alpaca_eval", "tatsu-lab/alpaca_eval")
    (tmp_path / "alpaca_eval.test.json").write_text(json.dumps([{"instruction": "a", "output": "b"}]))
    with pytest.raises(UnknownNameError, match="set of instructions"):
        load(task_of())
    assert len(load(published)) == 1


def test_only_the_first_instructions_are_asked(model: Any, asked: Path) -> None:
    data = load_instructions(TASK, data_dirs=[asked], offline=True)
    prompts = prompt_ids(data.rows, model.tokenizer, "alpaca")
    task = task_of(limit=2, max_new_tokens=9000)
    found = runtime().cost(task, data, model)
    tokens = sum(map(len, prompts[:2])) + 2 * 9000
    assert (found.examples, found.tokens, found.batch_tokens) == (2, tokens, 16_384)
    assert found.steps == 2 * 9000  # more than one batch, and less than two
    assert runtime().cost(task, data, MISSING).tokens == 2 * (120 + 9000)


def test_a_judge_is_estimated_with_and_without_the_data(asked: Path) -> None:
    data = load_instructions(TASK, data_dirs=[asked], offline=True)
    judge = {"name": "pandalm", "url": "http://127.0.0.1:1/v1"}
    given = find_task("alpaca_eval/open-platypus", overrides={"limit": 7, "max_new_tokens": 30, "judge": judge})
    found = runtime().cost(given, None, MISSING)
    assert (found.examples, found.tokens) == (7, 7 * (120 + 30))
    assert isinstance(found.requests, Requests)
    assert (found.requests.count, found.requests.written) == (14, 14 * 512)
    one, two = (
        runtime().cost(find_task(TASK, overrides={"limit": 1, "max_new_tokens": length, "judge": judge}),
                       data, MISSING).requests
        for length in (30, 31)
    )  # fmt: skip
    assert (one.count, two.read - one.read) == (2, 2)  # each order has one response of the model
    more = find_task("alpaca_eval/open-platypus", overrides={"limit": 7, "max_new_tokens": 31, "judge": judge})
    assert runtime().cost(more, None, MISSING).requests.read - found.requests.read == 28
    local = find_task(TASK, overrides={"limit": 1, "max_new_tokens": 30, "judge": {**judge, "backend": "local"}})
    both = runtime().cost(local, data, MISSING)
    assert both.auxiliary_tokens == {"judge": one.read + one.written}
    assert both.requests is None


def test_an_instruction_is_known_by_its_content_and_its_row(asked: Path) -> None:
    data = load_instructions(TASK, data_dirs=[asked], offline=True)
    for row, one in enumerate(data.rows):
        content = f"Say {row}.\x1f{'Loud' if row == 1 else ''}"
        assert one.id == f"{hashlib.sha256(content.encode()).hexdigest()[:12]}-{row}"
        assert one.reference == str(row)
    assert {source.rows for source in SOURCES.values()} == {805}
    assert SOURCES["alpaca_eval"].hub


def test_a_blank_reference_is_refused_and_output_is_read_only_without_one(tmp_path: Path) -> None:
    path = tmp_path / "x.test.jsonl"
    path.write_text(json.dumps({"instruction": "a", "reference": "yes", "output": "no"}))
    assert load_instructions("x", data_dirs=[tmp_path], offline=True).rows[0].reference == "yes"
    for row in ({"reference": " "}, {"reference": None, "output": "no"}, {"output": 3}):
        path.write_text(json.dumps({"instruction": "a", **row}))
        with pytest.raises(DataError, match='expected a response in "reference"'):
            load_instructions("x", data_dirs=[tmp_path], offline=True)


@pytest.mark.parametrize("name", ["../x", "..\\x"])
def test_a_name_that_is_a_path_is_no_set_of_instructions(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / f"{name}.test.json").write_text(json.dumps([{"instruction": "a", "reference": "b"}]))
    with pytest.raises(UnknownNameError, match="set of instructions"):
        load_instructions(name, data_dirs=[folder], offline=True)


def test_responses_are_read_with_the_line_that_is_none(tmp_path: Path) -> None:
    row = {"id": "a-0", "instruction": "q", "input": "", "reference": "r", "ids": [1], "text": "t", "ended": True}
    path = tmp_path / RESPONSES
    path.write_text(f"{json.dumps(row)}\n")
    assert read_responses(path) == [Response(**row)]
    for bad in ('{"id": ', json.dumps({**row, "ended": "perhaps"}), json.dumps({**row, "more": 1})):
        path.write_text(f"{json.dumps(row)}\n{bad}\n")
        with pytest.raises(DataError, match=rf"{RESPONSES}:2"):
            read_responses(path)


def test_a_response_keeps_its_spaces_and_no_special_token(model: Any, asked: Path) -> None:
    model.tokenizer.add_special_tokens({"additional_special_tokens": ["<|S|>"]})
    (first, *_) = load_instructions(TASK, data_dirs=[asked], offline=True).rows
    ids = model.tokenizer("  a , b .<|S|> ")["input_ids"]
    found = _response(first, Continuation(ids, True), model.tokenizer, response_end(model.tokenizer, "alpaca"))
    assert (found.text, found.ids, found.ended) == ("a , b .", ids, True)
    assert (found.id, found.instruction, found.reference) == (first.id, "Say 0.", "0")


def test_an_interrupted_attempt_answers_the_others_alone(byte_model: Path, asked: Path, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    subject = Subject(
        AutoModelForCausalLM.from_pretrained(byte_model), AutoTokenizer.from_pretrained(byte_model), other=None,
        work=lambda title, unit: nullcontext(lambda *done: told.append(done)), sentence_encoder=None,
        keep=None, facts={},
    )  # type: ignore[arg-type]  # fmt: skip
    data, rules = load_instructions(TASK, data_dirs=[asked], offline=True), InstructProtocol(max_new_tokens=3)
    whole, again = tmp_path / "whole", tmp_path / "again"
    for folder in (whole, again):
        folder.mkdir()
    generate_responses(subject, TASK, rules, data, whole)
    assert told[-1] == (6, 6)
    first, second = (whole / RESPONSES).read_text().splitlines()[:2]
    Journal(again / UNFINISHED).append([first.replace('"text": "', '"text": "kept '), second])
    told.clear()
    generate_responses(subject, TASK, rules, data, again)
    found = read_responses(again / RESPONSES)
    assert found[0].text.startswith("kept ")
    assert found[1:] == read_responses(whole / RESPONSES)[1:]
    assert told[-1] == (6, 6)
    assert len(Journal(again / UNFINISHED).read()) == 6


def test_scores_without_a_judge_are_means_over_responses() -> None:
    rows = [("a b", "a b", [1, 2, 3], True), ("a", "a b", [1], False), ("c", "a b", [], True)]
    found = reference_scores([
        Response(id=str(i), instruction="q", input="", reference=reference, ids=ids, text=text, ended=ended)
        for i, (text, reference, ids, ended) in enumerate(rows)
    ])  # fmt: skip
    scores = {name: score.value for name, score in found.scores.items()}
    assert scores == {"rougeL": pytest.approx((1 + 2 / 3) / 3), "ended": 2 / 3, "response_tokens": 4 / 3}
    assert {name: (score.higher_is_better, score.flags) for name, score in found.scores.items()} == {
        "rougeL": (True, ()), "ended": (None, (SECONDARY,)), "response_tokens": (None, (SECONDARY,)),
    }  # fmt: skip
