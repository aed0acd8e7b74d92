"""Tasks of kind `instruct`: prompts, where responses end, scores, limits and identities, by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.data.conversations import FORMATS, Conversation, Turn, instruction_of
from emobench.inference.decoding.request import Continuation
from emobench.kinds.instruct import evaluate
from emobench.kinds.instruct.instructions import SOURCES, Instructions, load_instructions
from emobench.kinds.instruct.judged import MEASURES
from emobench.kinds.instruct.responses import (
    RESPONSES,
    Response,
    _response,
    generate_responses,
    prompt_ids,
    reference_scores,
    response_end,
)
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Subject
from emobench.kinds.journal import UNFINISHED, Journal
from emobench.kinds.rows import read_rows
from emobench.metrics.rouge import ROUGE
from emobench.registry import find_task, load_kind
from emobench.tasks.scores import SECONDARY

CHAT = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
TASK = "instructions"
RUNTIME: Any = evaluate
MISSING: Any = SimpleNamespace(is_local=False, bytes_per_token=4.0)
"""A model whose files are not on this machine."""


def tokenizer_of(folder: Path, template: str = "alpaca") -> Any:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if template == "chat":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|end|>"]})
        tokenizer.chat_template = CHAT
    return tokenizer


def load(folder: Path, name: str = TASK) -> Instructions:
    return load_instructions(name, data_dirs=[folder], offline=True)


def task_of(**overrides: Any) -> Any:
    return find_task(TASK, overrides=overrides)


@pytest.fixture
def data(asked: Path) -> Instructions:
    return load(asked)


@pytest.fixture
def model(byte_model: Path) -> Any:
    return SimpleNamespace(name="bytes", is_local=True, tokenizer=tokenizer_of(byte_model), context=1024)


def subject_of(model: Any, tokenizer: Any, told: list[Any] | None = None) -> Subject:
    nothing: Any = None
    seen: list[Any] = [] if told is None else told
    work: Any = lambda title, unit: nullcontext(lambda *done: seen.append(done))  # noqa: E731
    return Subject(model, tokenizer, nothing, work, nothing, nothing, {})


def samples_of(tmp_path: Path, entry: dict[str, Any]) -> list[dict[str, Any]]:
    path = tmp_path / "runs" / entry["runs"][0]["samples"][0]["path"]
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_instructions_are_read_from_a_file_by_its_path(asked: Path, tmp_path: Path, data: Instructions) -> None:
    by_path = load(tmp_path, f"{asked}/{TASK}.test.jsonl")
    assert (by_path.rows, by_path.fingerprint) == (data.rows, data.fingerprint)
    assert by_path.name == f"./{TASK}.test.jsonl"
    with pytest.raises(ConfigError, match=r"nothing\.jsonl"):
        load(tmp_path, "./nothing.jsonl")


@pytest.mark.parametrize("template", ["alpaca", "chat"])
def test_a_model_is_asked_with_the_tokens_that_a_response_follows_in_training(
    template: str, byte_model: Path, data: Instructions
) -> None:
    tokenizer = tokenizer_of(byte_model, template)
    layout, ends = FORMATS[template](tokenizer), response_end(tokenizer, template).ids
    assert ends == ((256,) if template == "alpaca" else (256, tokenizer.convert_tokens_to_ids("<|end|>")))
    for one, prompt in zip(data.rows, prompt_ids(data.rows, tokenizer, template), strict=True):
        trained = layout.tokens(Conversation((*one.asked.turns, Turn("assistant", one.reference)), one.asked.input))
        begins = trained.counts_T.index(True)
        assert prompt == trained.ids_T[:begins]
        after = trained.ids_T[begins:]
        end = next(place for place, token in enumerate(after) if token in ends)
        assert tokenizer.decode(after[:end]) == one.reference
        assert trained.counts_T[begins + end]  # the model learns to end there


@pytest.mark.parametrize(
    ("tail", "ends", "text"),
    [
        ("XYZ", "ordinary text", "abc"),
        ("X", "a token that spells it", "abc"),
        ("<|Q|>", "an added token that is not special", "abcX"),
        ("<eos>", "EOS", "abcXYZ"),
    ],
)
def test_generation_stops_at_what_the_template_writes_after_a_response(
    tail: str, ends: str, text: str, byte_model: Path, data: Instructions, tmp_path: Path
) -> None:
    """The model writes a fixed successor of each token: abcX, then Y or <|Q|>, Z and EOS."""
    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    tokenizer.add_tokens(["<|Q|>"])
    begin = "{% for m in messages %}"
    tokenizer.chat_template = begin + CHAT[len(f"{begin}<|start|>") :].replace("<|end|>\n", tail)
    added, eos = tokenizer.convert_tokens_to_ids("<|Q|>"), tokenizer.eos_token_id
    letters = [tokenizer(letter, add_special_tokens=False)["input_ids"][0] for letter in "\nabcXYZ"]
    path = [*letters[:5], added] if tail == "<|Q|>" else [*letters, eos]
    size = len(tokenizer)
    config = LlamaConfig(
        vocab_size=size, hidden_size=size, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        tie_word_embeddings=False, eos_token_id=eos, bos_token_id=None,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.model.norm.weight.fill_(1)
        model.model.embed_tokens.weight.copy_(torch.eye(size))
        for before, after in pairwise([*path, letters[0]]):
            model.lm_head.weight[after, before] = 1
    rules = InstructProtocol(template="chat", max_new_tokens=20, limit=1)
    generate_responses(subject_of(model, tokenizer), TASK, rules, data, tmp_path)
    (response,) = read_rows(Response, tmp_path / RESPONSES)
    assert (response.text, response.ended, tokenizer.decode(response.ids)) == (text, True, text), ends


def test_a_run_trains_answers_and_records(instruct: Callable[..., Any], tmp_path: Path, asked: Path) -> None:
    recipe = ("--set", "recipe.epochs=1", "--set", "recipe.batch=4", "--set", "recipe.lora=true")
    done = instruct("run", "--objective", "mle", "--objective", "emo", "--seed", "0", *recipe, "--json").ok()
    entries = done.json["entries"]
    assert [entry["objective"]["name"] for entry in entries] == ["mle", "emo"]
    assert len({entry["protocols"][TASK] for entry in entries}) == 1
    given = [json.loads(line) for line in (asked / "instructions.test.jsonl").read_text().splitlines()]
    scorer = RougeScorer(["rougeL"])
    for entry in entries:
        assert entry["recipe"]["corpus"] == "responses"
        rows = samples_of(tmp_path, entry)
        assert [{name: row[name] for name in ("instruction", "input", "reference")} for row in rows] == given
        overlap = [scorer.score(row["reference"], row["text"])["rougeL"].fmeasure for row in rows]
        assert {name: metric["mean"] for name, metric in entry["metrics"].items()} == {
            f"{TASK}/rougeL": pytest.approx(sum(overlap) / len(rows)),
            f"{TASK}/ended": sum(row["ended"] for row in rows) / len(rows),
            f"{TASK}/response_tokens": sum(len(row["ids"]) for row in rows) / len(rows),
        }
        assert entry["metrics"][f"{TASK}/rougeL"]["n"] == len(given)


def test_equal_instructions_are_one_unit(instruct: Callable[..., Any], tmp_path: Path) -> None:
    rows = [{"instruction": f"Say {i % 4}.", "input": "Loud" if i == 9 else "", "reference": f"{i}"} for i in range(10)]
    folder = tmp_path / "asked"
    folder.mkdir()
    (folder / "instructions.test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (entry,) = instruct("evaluate", "--json", data=folder).ok().json["entries"]
    assert {(metric["n"], metric["units"]) for metric in entry["metrics"].values()} == {(10, 5)}


def test_greedy_responses_are_the_likeliest_tokens_and_other_rules_generate_anew(
    instruct: Callable[..., Any], command: Callable[..., Any], tmp_path: Path, byte_model: Path
) -> None:
    greedy = instruct("evaluate", "--json").ok().json["entries"][0]
    tokenizer, model = tokenizer_of(byte_model), AutoModelForCausalLM.from_pretrained(byte_model)
    rows = samples_of(tmp_path, greedy)
    for row in rows:
        ids = FORMATS["alpaca"](tokenizer).prompt(instruction_of(row, "row"))
        for token in [*row["ids"], *([256] if row["ended"] else [])]:
            with torch.no_grad():
                assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids = [*ids, token]
        assert row["ended"] == (len(row["ids"]) < 8)
    places = ("--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs")
    shown = command("samples", "pretrained", *places, "--json").ok().json["samples"][0]["rows"][1]
    assert (shown["prefix"], shown["human"]) == ("Say 1.\n\nLoud", "1")
    drawn = [instruct("evaluate", "--json", "--set", "instruct.temperature=1.0").ok() for _ in range(2)]
    first, second = (done.json["entries"][0] for done in drawn)
    assert first["protocols"][TASK] == second["protocols"][TASK] != greedy["protocols"][TASK]
    assert first["runs"][0]["samples"] == second["runs"][0]["samples"]
    assert samples_of(tmp_path, first) != rows


def test_what_does_not_fit_is_refused_before_a_training(instruct: Callable[..., Any]) -> None:
    other = ("--set", "recipe.template=chat")
    instruct("run", *other, "--dry-run").refused("template alpaca", "--set instruct.template=chat")
    allowed = (*other, "--set", "instruct.other_template=true")
    instruct("run", *allowed, "--dry-run").refused("Take the Alpaca prompt")
    # A training on plain text has no prompts.
    load_kind("instruct").check_use(find_task(TASK), template="none", trusted=False, dry=True)
    assert task_of(other_template=True).protocol_id == find_task(TASK).protocol_id
    instruct("evaluate", "--set", "instruct.max_new_tokens=1000").refused("set instruct.max_new_tokens=")
    instruct("evaluate", "--set", "protocol=chat").refused("has no chat template")


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_a_prompt_and_its_response_fit_the_context(
    backend: str, model: Any, data: Instructions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last token of a response is not read, but vLLM has a position for it."""
    monkeypatch.setattr("emobench.kinds.instruct.evaluate.check_backend", lambda *given: None)  # it is not installed
    longest = max(len(ids) for ids in prompt_ids(data.rows, model.tokenizer, "alpaca"))
    for context in (1024, longest + 1, longest):
        model.context = context
        room = context - longest + (backend == "transformers")
        if room:
            RUNTIME.check(task_of(backend=backend, max_new_tokens=room), data, model)
        with pytest.raises(ConfigError, match=rf"of {longest} tokens with {room + 1} .* set .*={room} or less"):
            RUNTIME.check(task_of(backend=backend, max_new_tokens=room + 1), data, model)
    model.context = None
    RUNTIME.check(task_of(backend=backend, max_new_tokens=10_000), data, model)


def test_the_metrics_follow_from_the_judge() -> None:
    rouge = {"rougeL": ROUGE["rougeL"]}
    for name, metric in (("pandalm", "win_rate"), ("mt-bench", "grade")):
        assert RUNTIME.metrics(task_of(judge={"name": name})) == {metric: MEASURES[metric]} | rouge
    measures = RUNTIME.metrics(task_of())
    assert isinstance(measures.pop("win_rate"), str)
    assert measures == rouge


def test_instructions_are_local_or_a_known_download(tmp_path: Path) -> None:
    published = find_task("alpaca_eval/open-platypus")
    with pytest.raises(Missing) as missing:
        RUNTIME.load(published, data_dirs=[tmp_path], offline=True)
    assert (missing.value.item, missing.value.source) == ("data set alpaca_eval", "tatsu-lab/alpaca_eval")
    with pytest.raises(Missing, match=r"Put results/baize-v2-7b/model_outputs\.json of github"):
        load(tmp_path, "baize-v2-7b")
    for name in ("alpaca_eval", "baize-v2-7b"):
        (tmp_path / f"{name}.test.json").write_text(json.dumps([{"instruction": "Say it.", "output": "It."}]))
        (one,) = load(tmp_path, name).rows
        assert (one.text, one.reference) == ("Say it.", "It.")
    (tmp_path / "baize-v2-7b.test.json").write_text("{}")
    with pytest.raises(DataError, match='no column "instruction"'):
        load(tmp_path, "baize-v2-7b")
    (tmp_path / "data").mkdir()
    for name in (TASK, "../x", "..\\x"):  # a path is no name of a file in a data folder
        (tmp_path / "data" / f"{name}.test.json").write_text(json.dumps([{"instruction": "a", "reference": "b"}]))
        with pytest.raises(UnknownNameError if name == TASK else ConfigError):
            load(tmp_path if name == TASK else tmp_path / "data", name)


def test_only_the_first_instructions_are_asked(model: Any, data: Instructions) -> None:
    prompts = prompt_ids(data.rows, model.tokenizer, "alpaca")
    task = task_of(limit=2, max_new_tokens=9000)
    cost = RUNTIME.cost(task, data, model)
    assert (cost.examples, cost.tokens, cost.batch_tokens) == (2, sum(map(len, prompts[:2])) + 2 * 9000, 16_384)
    assert cost.steps == 2 * 9000  # more than one batch, and less than two
    assert RUNTIME.cost(task, data, MISSING).tokens == 2 * (120 + 9000)


def test_a_judge_is_estimated_with_and_without_the_data(data: Instructions) -> None:
    judge = {"name": "pandalm", "url": "http://127.0.0.1:1/v1"}

    def cost(given: Instructions | None, length: int, limit: int, **more: str) -> Any:
        rules = {"limit": limit, "max_new_tokens": length, "judge": {**judge, **more}}
        return RUNTIME.cost(find_task(TASK if given else "alpaca_eval/open-platypus", overrides=rules), given, MISSING)

    unread = cost(None, 30, 7)
    assert (unread.examples, unread.tokens) == (7, 7 * (120 + 30))
    assert (unread.requests.count, unread.requests.written) == (14, 14 * 512)
    assert cost(None, 31, 7).requests.read - unread.requests.read == 28
    one = cost(data, 30, 1).requests
    assert (one.count, cost(data, 31, 1).requests.read - one.read) == (2, 2)  # each order has one response of the model
    local = cost(data, 30, 1, backend="local")
    assert (local.auxiliary_tokens, local.requests) == ({"judge": one.read + one.written}, None)


def test_instructions_are_known_by_their_content_and_their_rows(data: Instructions, tmp_path: Path) -> None:
    for row, one in enumerate(data.rows):
        content = f"Say {row}.\x1f{'Loud' if row == 1 else ''}"
        assert one.id == f"{hashlib.sha256(content.encode()).hexdigest()[:12]}-{row}"
        assert one.reference == str(row)
    assert {source.rows for source in SOURCES.values()} == {805}
    fingerprints = set()
    for row in ({"output": "1"}, {"reference": "1", "output": "no"}, {"reference": "2"}):
        (tmp_path / "x.test.jsonl").write_text(json.dumps({"instruction": "a", **row}))
        fingerprints.add(load(tmp_path, "x").fingerprint)
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"instruction": "Say 1.", "input": ""}', 'expected a response in "reference"'),
        ('{"instruction": "Say 1.", "reference": " "}', 'expected a response in "reference"'),
        ('{"instruction": "Say 1.", "reference": null, "output": "no"}', 'expected a response in "reference"'),
        ('{"instruction": "Say 1.", "output": 3}', 'expected a response in "reference"'),
        ('{"instruction": " ", "reference": "1"}', "is blank"),
        ('{"reference": "1"}', 'no column "instruction"'),
        ('{"instruction": "a", "input": 3, "reference": "1"}', '"input" must be a text'),
        ('{"instruction": "\\ud800", "reference": "1"}', "surrogates not allowed"),
        ("", "has no instruction"),
    ],
)
def test_rows_that_cannot_be_read_are_named(row: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.test.jsonl").write_text(row)
    with pytest.raises(DataError, match=reason):
        load(tmp_path, "x")


def test_responses_are_read_with_the_line_that_is_none(tmp_path: Path) -> None:
    row = {"id": "a-0", "instruction": "q", "input": "", "reference": "r", "ids": [1], "text": "t", "ended": True}
    path = tmp_path / RESPONSES
    path.write_text(f"{json.dumps(row)}\n")
    assert read_rows(Response, path) == [Response(**row)]
    for bad in ('{"id": ', json.dumps({**row, "ended": "perhaps"}), json.dumps({**row, "more": 1})):
        path.write_text(f"{json.dumps(row)}\n{bad}\n")
        with pytest.raises(DataError, match=rf"{RESPONSES}:2"):
            read_rows(Response, path)


def test_a_response_keeps_its_spaces_and_no_special_token(model: Any, data: Instructions) -> None:
    model.tokenizer.add_special_tokens({"additional_special_tokens": ["<|S|>"]})
    first = data.rows[0]
    ids = model.tokenizer("  a , b .<|S|> ")["input_ids"]
    response = _response(first, Continuation(ids, True), model.tokenizer, response_end(model.tokenizer, "alpaca"))
    assert (response.text, response.ids, response.ended) == ("a , b .", ids, True)
    assert (response.id, response.instruction, response.reference) == (first.id, "Say 0.", "0")


def test_an_interrupted_attempt_answers_the_others_alone(
    model: Any, byte_model: Path, data: Any, tmp_path: Path
) -> None:
    told: list[tuple[int, int]] = []
    subject = subject_of(AutoModelForCausalLM.from_pretrained(byte_model), model.tokenizer, told)
    rules, whole, again = InstructProtocol(max_new_tokens=3), tmp_path / "whole", tmp_path / "again"
    whole.mkdir()
    again.mkdir()
    generate_responses(subject, TASK, rules, data, whole)
    first, second = (whole / RESPONSES).read_text().splitlines()[:2]
    Journal(again / UNFINISHED).append([first.replace('"text": "', '"text": "kept '), second])
    generate_responses(subject, TASK, rules, data, again)
    responses = read_rows(Response, again / RESPONSES)
    assert responses[0].text.startswith("kept ")
    assert responses[1:] == read_rows(Response, whole / RESPONSES)[1:]
    assert told == [(6, 6), (6, 6)]
    assert len(Journal(again / UNFINISHED).read()) == 6


def test_scores_without_a_judge_are_means_over_responses() -> None:
    given = [("a b", [1, 2, 3], True), ("a", [1], False), ("c", [], True)]
    responses = []
    for text, ids, ended in given:
        response = Response(id=text, instruction="q", input="", reference="a b", ids=ids, text=text, ended=ended)
        responses.append(response)
    scores = reference_scores(responses).scores
    values = {name: (score.value, score.higher_is_better, score.flags) for name, score in scores.items()}
    assert values == {
        "rougeL": (pytest.approx((1 + 2 / 3) / 3), True, ()),
        "ended": (2 / 3, None, (SECONDARY,)),
        "response_tokens": (4 / 3, None, (SECONDARY,)),
    }
