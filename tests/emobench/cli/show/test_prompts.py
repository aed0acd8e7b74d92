"""`emobench prompts` shows what a run scores, and `emobench answers` what it answered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RULES = ("--set", "icl.retriever=bm25", "--set", "icl.shots=3", "--limit", 24)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("icl")


@pytest.fixture(scope="module")
def show(command: Callable[..., Any], byte_model: Path, labelled: Path, place: Path) -> Callable[..., Any]:
    """What runs `emobench prompts` on the small model and data."""
    given = ("--model", byte_model, "--data-dir", labelled, "--runs", place / "runs", "--offline", "--quiet")
    return lambda *arguments: command("prompts", *arguments, *given, *RULES)


@pytest.fixture(scope="module")
def entry(command: Callable[..., Any], byte_model: Path, labelled: Path, place: Path) -> dict[str, Any]:
    given = ("--model", byte_model, "--data-dir", labelled, "--runs", place / "runs", "--leaderboard", place / "board")
    tasks = ("--suite", "nlu", "--set", "tasks=sst2,trec")
    return command("evaluate", *given, *tasks, *RULES, "--offline", "--quiet", "--json").ok().json["entries"][0]


def samples(place: Path, entry: dict[str, Any], task: str) -> dict[str, Any]:
    for file in entry["runs"][0]["samples"]:
        path = place / "runs" / file["path"]
        if json.loads((path.parent / "stage.json").read_text())["task"]["name"] == task:
            return {row["id"]: row for row in map(json.loads, path.read_text().splitlines())}
    raise AssertionError(task)


def test_what_is_shown_is_what_a_run_scores(show: Any, place: Path, entry: dict[str, Any], labelled: Path) -> None:
    shown = show("trec", "--count", 4, "--json").json
    assert (shown["task"], shown["protocol"]) == ("trec", entry["protocols"]["trec"])
    rows = [json.loads(line) for line in (labelled / "trec.test.jsonl").read_text().splitlines()]
    recorded = samples(place, entry, "trec")
    assert len(shown["prompts"]) == 4
    for prompt, row in zip(shown["prompts"], rows, strict=False):
        sample = recorded[prompt["id"]]
        assert prompt["right"] == row["label_name"] == sample["label"]
        assert [shot for shot, _ in prompt["shots"]] == sample["shots"]
        texts = prompt["text"].split("\n")
        assert len(texts) == 4
        assert texts[-1].startswith(f'Question: "{row["text"]}" It is about ')
        losses = [nats / tokens for nats, tokens in zip(sample["prompt_nats"], sample["prompt_tokens"], strict=True)]
        assert [label["loss"] for label in prompt["labels"]] == pytest.approx(losses, abs=1e-5)
        assert sum(label["posterior"] for label in prompt["labels"]) == pytest.approx(1)
        assert prompt["answer"] == min(prompt["labels"], key=lambda label: label["loss"])["name"]
        right = next(i for i, label in enumerate(prompt["labels"]) if label["name"] == prompt["right"])
        assert prompt["tokens"] == sample["prompt_tokens"][right] == len(prompt["text"].encode())
        assert "".join(piece["text"] for piece in prompt["pieces"]) == prompt["text"]
        ids = [piece["token"] for piece in prompt["pieces"]]
        assert prompt["first_ids"] == ids[:8]


def test_without_colour_parts_are_named_and_line_ends_seen(show: Any) -> None:
    prompt = show("sst2", "--json").json["prompts"][0]
    done = show("sst2").ok()
    lines = done.out.splitlines()
    parts_named = {"shot 1", "shot 2", "shot 3", "input", "label"}
    named = [line for line in lines if line.lstrip().partition(" | ")[0] in parts_named]
    parts = prompt["text"].split("\n")
    begin = parts[-1][: -len(f"{prompt['right']}.")]
    assert named == [
        *(f"shot {i} | {text}↵" for i, text in enumerate(parts[:-1], 1)),
        f" input | {begin}",
        f" label | {prompt['right']}.",
    ]
    assert f"first ids: {' '.join(map(str, prompt['first_ids']))}" in lines
    (posterior,) = (line for line in lines if line.startswith("posterior: "))
    assert "the probability of each label by the summed losses" in posterior
    assert "two can differ" in posterior
    assert "two can differ" not in show("sst2", "--set", "icl.scorer=label").out
    lines.remove(posterior)
    assert sum("answer" in line for line in lines) == 1
    assert sum(line.rstrip().endswith("right") for line in lines) == 1
    assert "\x1b" not in done.out


def test_a_protocol_a_bos_and_an_example_can_be_chosen(show: Any) -> None:
    every = show("sst2", "--count", 30, "--json").json
    assert len(every["prompts"]) == 24
    chosen = every["prompts"][20]["id"]
    one = show("sst2", "--protocol", "official-code", "--set", "icl.bos=one", "--example", chosen[:12], "--json").json
    assert one["protocol"].startswith("official-code@")
    (prompt,) = one["prompts"]
    assert prompt["id"] == chosen
    assert prompt["pieces"][0] == {"part": "BOS", "text": "<eos>", "token": 256}
    assert prompt["first_ids"][0] == 256
    assert prompt["tokens"] == len(prompt["text"].encode()) + 1
    plain = show("sst2", "--set", "icl.bos=one", "--example", chosen).out
    assert "   BOS | <eos>" in plain


def test_a_prompt_that_lost_shots_says_so(show: Any) -> None:
    length = show("sst2", "--json").json["prompts"][0]["tokens"]
    done = show("sst2", "--set", f"icl.max_length={length - 40}")
    assert "too long, without its 1 least similar shots" in done.out or "without its 2 least" in done.out


def test_a_prompt_that_was_cut_is_shown_as_the_model_reads_it(show: Any) -> None:
    whole = show("sst2", "--json").json["prompts"][0]
    limit = ("--set", f"icl.max_length={whole['tokens'] - 40}", "--set", "icl.too_long=cut_right")
    (prompt,) = show("sst2", *limit, "--json").json["prompts"]
    assert prompt["tokens"] == whole["tokens"] - 40
    assert [piece["text"] for piece in prompt["pieces"]] == [piece["text"] for piece in whole["pieces"]][:-40]
    assert prompt["tied"]  # without a label, the first one answers
    assert "the last 40 tokens of its longest label's prompt" in show("sst2", *limit).out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["sst3"], "did you mean 'sst2'?"),
        (["oracle-language"], "is of kind oracle"),
        (["sst2", "--set", "recipe.epochs=1"], "--set recipe"),
        (["sst2", "--example", "zzz"], "--example zzz"),
        (["sst2", "--set", "icl.template=It is {label}."], "`template` is 'It is {label}.'"),
        (["sst2", "--set", "icl.max_length=5"], "Task sst2, "),
        (["sst2", "--protocol", "papr"], "did you mean 'paper'?"),
        (["sst2", "--set", "icl.pool=0.05"], "sst2.train.jsonl"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(show: Any, arguments: list[str], text: str) -> None:
    show(*arguments).refused(text)


def test_without_a_model_a_task_of_no_suite_with_one_asks_for_it(command: Any, labelled: Path, place: Path) -> None:
    given = ("--data-dir", labelled, "--runs", place / "runs", "--offline", *RULES)
    command("prompts", "sst2", *given).refused("--model NAME")


# Answers.


def test_answers_are_those_of_the_entry(command: Any, place: Path, entry: dict[str, Any]) -> None:
    given = ("--leaderboard", place / "board", "--runs", place / "runs")
    found = {one["task"]: one for one in command("answers", entry["id"], *given, "--json").json["answers"]}
    assert set(found) == {"sst2", "trec"}
    for task, one in found.items():
        rows = one["table"]["examples"]
        assert {row["id"] for row in rows} == set(samples(place, entry, task))
        right = sum(row["right"] == row["answer"] for row in rows)
        assert right / len(rows) == entry["metrics"][f"{task}/accuracy"]["mean"]
        assert sum(map(sum, one["table"]["confusion"])) == len(rows)
        assert sum(one["table"]["confusion"][i][i] for i in range(len(one["table"]["classes"]))) == right
        assert (one["entry"], one["seed"], one["objective"]) == (entry["id"], None, "pretrained")


def test_answers_are_shown_class_by_class_with_the_worst_mistakes(command: Any, place: Path, entry: Any) -> None:
    given = ("--leaderboard", place / "board", "--runs", place / "runs", "--task", "trec")
    (one,) = command("answers", "pretrained", *given, "--json").json["answers"]
    shown = command("answers", "pretrained", *given, "--worst", 2).out
    assert "sst2" not in shown
    assert f"trec · nlu v1 · {entry['model']['name']} · pretrained [{entry['id'][:6]}] · 24 examples" in shown
    assert "24 examples · accuracy" in shown
    header = next(line for line in shown.splitlines() if line.startswith("class"))
    assert header.replace("→", "").split() == ["class", "n", "precision", "recall", "F1", *one["table"]["classes"]]
    for row, counts in zip(one["table"]["per_class"], one["table"]["confusion"], strict=True):
        line = next(line for line in shown.splitlines() if line.startswith(f"{row['name']} "))
        assert line.split()[1] == str(row["support"])
        assert line.split()[-6:] == list(map(str, counts))
    wrong = [row for row in one["table"]["examples"] if row["right"] != row["answer"]]
    worst = sorted(wrong, key=lambda row: -row["margin"])
    assert [row["id"] in shown for row in worst[:3]] == [True, True, False]


def test_an_entry_without_answers_or_files_is_said_in_a_sentence(command: Any, place: Path, entry: Any) -> None:
    board = ("--leaderboard", place / "board")
    command("answers", "pretrained", *board, "--runs", place / "elsewhere").refused("--runs DIR")
    command("answers", "pretrained", *board, "--runs", place / "runs", "--task", "trek").refused("did you mean 'trec'?")
    command("answers", "published:emo-table3/llama-7b/emo", *board).refused("answered by labels")
