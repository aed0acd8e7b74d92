"""Tasks of kind `instruct` through the command line: what is asked, where responses end, and what they score."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from emobench.core.errors import ConfigError, DataError, Missing, UnknownNameError
from emobench.data.conversations import FORMATS, Conversation, Turn, instruction_of
from emobench.kinds.instruct.instructions import load_instructions
from emobench.kinds.instruct.responses import RESPONSES, generate_responses, prompt_ids, read_responses, response_end
from emobench.kinds.instruct.rules import InstructProtocol
from emobench.kinds.interface import Subject
from emobench.registry import find_task, load_kind

CHAT = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
TASK = "instructions"


def tokenizer_of(folder: Path, *, chat: bool) -> Any:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if chat:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|start|>", "<|end|>"]})
        tokenizer.chat_template = CHAT
    return tokenizer


@pytest.mark.parametrize("template", ["alpaca", "chat"])
def test_a_model_is_asked_with_the_tokens_that_a_response_follows_in_training(
    template: str, byte_model: Path, asked: Path
) -> None:
    tokenizer = tokenizer_of(byte_model, chat=template == "chat")
    rows = load_instructions(TASK, data_dirs=[asked], offline=True).rows
    layout = FORMATS[template](tokenizer)
    for one, prompt in zip(rows, prompt_ids(rows, tokenizer, template), strict=True):
        turns = (*one.asked.turns, Turn("assistant", one.reference))
        trained = layout.tokens(Conversation(turns, one.asked.input))
        begins = trained.counts_T.index(True)
        assert prompt == trained.ids_T[:begins]
        after = trained.ids_T[begins:]
        end = next(place for place, token in enumerate(after) if token in response_end(tokenizer, template).ids)
        assert tokenizer.decode(after[:end]) == one.reference
        assert trained.counts_T[begins + end]  # the model learns to end there


def test_a_turn_ends_where_the_template_ends_it(byte_model: Path) -> None:
    tokenizer = tokenizer_of(byte_model, chat=True)
    assert response_end(tokenizer, "alpaca").ids == (256,)
    assert response_end(tokenizer, "chat").ids == (256, tokenizer.convert_tokens_to_ids("<|end|>"))


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
    tail: str, ends: str, text: str, byte_model: Path, asked: Path, tmp_path: Path
) -> None:
    """The model writes a fixed successor of each token: abcX, then Y or <|Q|>, Z and EOS."""
    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    tokenizer.add_tokens(["<|Q|>"])
    tokenizer.chat_template = "{% for m in messages %}" + CHAT[len("{% for m in messages %}<|start|>") :].replace(
        "<|end|>\n", tail
    )
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
    subject = Subject(
        model, tokenizer, other=None, work=lambda title, unit: nullcontext(lambda done, total: None),
        sentence_encoder=None, keep=None, facts={},
    )  # type: ignore[arg-type]  # fmt: skip
    rules = InstructProtocol(template="chat", max_new_tokens=20, limit=1)
    data = load_instructions(TASK, data_dirs=[asked], offline=True)
    generate_responses(subject, TASK, rules, data, tmp_path)
    (found,) = read_responses(tmp_path / RESPONSES)
    assert (found.text, found.ended, tokenizer.decode(found.ids)) == (text, True, text), ends


def test_a_run_trains_answers_and_records(instruct: Callable[..., Any], tmp_path: Path, asked: Path) -> None:
    recipe = ("--set", "recipe.epochs=1", "--set", "recipe.batch=4", "--set", "recipe.lora=true")
    done = instruct("run", "--objective", "mle", "--objective", "emo", "--seed", "0", *recipe, "--json").ok()
    entries = done.json["entries"]
    assert [entry["objective"]["name"] for entry in entries] == ["mle", "emo"]
    assert len({entry["protocols"][TASK] for entry in entries}) == 1
    for entry in entries:
        assert entry["recipe"]["corpus"] == "responses"
        (run,) = entry["runs"]
        (samples,) = run["samples"]
        rows = [json.loads(line) for line in (tmp_path / "runs" / samples["path"]).read_text().splitlines()]
        given = [json.loads(line) for line in (asked / "instructions.test.jsonl").read_text().splitlines()]
        assert [(row["instruction"], row["input"], row["reference"]) for row in rows] == [
            (row["instruction"], row["input"], row["reference"]) for row in given
        ]
        scorer = RougeScorer(["rougeL"])
        overlap = [scorer.score(row["reference"], row["text"])["rougeL"].fmeasure for row in rows]
        means = {name: metric["mean"] for name, metric in entry["metrics"].items()}
        assert means == {
            f"{TASK}/rougeL": pytest.approx(sum(overlap) / len(rows)),
            f"{TASK}/ended": sum(row["ended"] for row in rows) / len(rows),
            f"{TASK}/response_tokens": sum(len(row["ids"]) for row in rows) / len(rows),
        }
        assert entry["metrics"][f"{TASK}/rougeL"]["n"] == len(given)


def test_equal_instructions_are_one_unit(instruct: Callable[..., Any], tmp_path: Path) -> None:
    rows = [{"instruction": f"Say {i % 4}.", "input": "Loud" if i == 9 else "", "reference": f"{i}"} for i in range(10)]
    data = tmp_path / "asked"
    data.mkdir()
    (data / "instructions.test.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (entry,) = instruct("evaluate", "--json", data=data).ok().json["entries"]
    for metric in entry["metrics"].values():
        assert (metric["n"], metric["units"]) == (10, 5)


def test_greedy_responses_are_the_likeliest_tokens(
    instruct: Callable[..., Any], tmp_path: Path, byte_model: Path
) -> None:
    entry = instruct("evaluate", "--json").ok().json["entries"][0]
    samples = tmp_path / "runs" / entry["runs"][0]["samples"][0]["path"]
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    tokenizer, model = AutoTokenizer.from_pretrained(byte_model), AutoModelForCausalLM.from_pretrained(byte_model)
    for row in rows:
        (ids,) = prompt_ids_of(row, tokenizer)
        for token in [*row["ids"], *([256] if row["ended"] else [])]:
            with torch.no_grad():
                assert int(model(torch.tensor([ids])).logits[0, -1].argmax()) == token
            ids = [*ids, token]
        assert row["ended"] == (len(row["ids"]) < 8)


def prompt_ids_of(row: dict[str, Any], tokenizer: Any) -> list[list[int]]:
    return [FORMATS["alpaca"](tokenizer).prompt(instruction_of(row, "row"))]


def test_other_rules_of_decoding_are_another_protocol_and_generate_anew(
    instruct: Callable[..., Any], tmp_path: Path
) -> None:
    found = []
    for more in ((), ("--set", "instruct.temperature=1.0"), ("--set", "instruct.temperature=1.0")):
        entry = instruct("evaluate", "--json", *more).ok().json["entries"][0]
        found.append((entry["protocols"][TASK], (tmp_path / "runs" / entry["runs"][0]["samples"][0]["path"])))
    assert found[0][0] != found[1][0]
    assert found[1] == found[2]
    assert found[0][1].read_text() != found[1][1].read_text()


def test_samples_show_the_responses(instruct: Callable[..., Any], command: Callable[..., Any], tmp_path: Path) -> None:
    instruct("evaluate").ok()
    places = ("--leaderboard", tmp_path / "board", "--runs", tmp_path / "runs")
    (table,) = command("samples", "pretrained", *places, "--json").ok().json["samples"]
    row = table["rows"][1]
    assert (row["prefix"], row["human"]) == ("Say 1.\n\nLoud", "1")


def test_a_dry_run_counts_tokens(instruct: Callable[..., Any], byte_model: Path, asked: Path) -> None:
    done = instruct("evaluate", "--dry-run", "--json").ok()
    (line,) = [stage for stage in done.json["plan"] if stage["stage"] == "evaluate"]
    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    rows = load_instructions(TASK, data_dirs=[asked], offline=True).rows
    assert line["examples"] == len(rows)
    assert line["tokens"] == sum(map(len, prompt_ids(rows, tokenizer, "alpaca"))) + 8 * len(rows)


def test_prompts_of_another_template_than_the_trainings_are_refused(instruct: Callable[..., Any]) -> None:
    instruct("run", "--set", "recipe.template=chat", "--dry-run").refused(
        "the prompts have the template alpaca, and the training has chat",
        "--set recipe.template=alpaca or --set instruct.template=chat",
    )
    allowed = ("--set", "recipe.template=chat", "--set", "instruct.other_template=true")
    instruct("run", *allowed, "--dry-run").refused("has no chat template. Take the Alpaca prompt")
    kind, task = load_kind("instruct"), find_task(TASK)
    kind.check_template(task, "none")  # a training on plain text has no prompts
    assert find_task(TASK, overrides={"other_template": True}).protocol_id == task.protocol_id


def test_instructions_are_read_from_a_list_and_the_rivals_place_is_named(tmp_path: Path) -> None:
    rows = [{"instruction": "Say it.", "output": "It.", "generator": "baize-v2-7b"}]
    with pytest.raises(Missing, match=r"Put results/baize-v2-7b/model_outputs\.json of github"):
        load_instructions("baize-v2-7b", data_dirs=[tmp_path], offline=True)
    (tmp_path / "baize-v2-7b.test.json").write_text(json.dumps(rows))
    (one,) = load_instructions("baize-v2-7b", data_dirs=[tmp_path], offline=True).rows
    assert (one.text, one.reference) == ("Say it.", "It.")
    (tmp_path / "baize-v2-7b.test.json").write_text("{}")
    with pytest.raises(DataError, match='"instruction" must be a text'):
        load_instructions("baize-v2-7b", data_dirs=[tmp_path], offline=True)


def test_what_does_not_fit_is_refused_before_a_training(instruct: Callable[..., Any]) -> None:
    instruct("evaluate", "--set", "instruct.max_new_tokens=1000").refused("set instruct.max_new_tokens=", "or less")
    instruct("evaluate", "--set", "protocol=chat").refused("has no chat template")
    with pytest.raises(ConfigError, match="which draws nothing"):
        InstructProtocol(top_p=0.5)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"instruction": "Say 1.", "input": ""}', 'expected a response in "reference"'),
        ('{"instruction": " ", "reference": "1"}', "is blank"),
        ('{"reference": "1"}', '"instruction" must be a text'),
        ('{"instruction": "a", "input": 3, "reference": "1"}', '"input" must be a text'),
        ('{"instruction": "\\ud800", "reference": "1"}', "surrogates not allowed"),
        ("", "holds no instruction"),
    ],
)
def test_rows_that_cannot_be_read_are_named(row: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.test.jsonl").write_text(row)
    with pytest.raises(DataError, match=reason):
        load_instructions("x", data_dirs=[tmp_path], offline=True)


def test_a_set_of_instructions_has_a_fingerprint_of_its_texts(tmp_path: Path) -> None:
    found = set()
    for reference, name in (("1", "output"), ("1", "reference"), ("2", "reference")):
        (tmp_path / "x.test.jsonl").write_text(json.dumps({"instruction": "a", name: reference}))
        found.add(load_instructions("x", data_dirs=[tmp_path], offline=True).fingerprint)
    assert len(found) == 2
    with pytest.raises(UnknownNameError, match=r"DIR/y\.test\.jsonl"):
        load_instructions("y", data_dirs=[tmp_path], offline=True)
