"""Training on conversations by the command line: rows of one or of several, and what is refused before any work."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
CHAT += "{% if add_generation_prompt %}<assistant>{% endif %}"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("answers")
    rows = [{"instruction": f"Count to {i}.", "output": " ".join(map(str, range(i)))} for i in range(60)]
    (folder / "own.train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


@pytest.fixture
def train(command: Callable[..., Any], byte_model: Path, answers: Path, tmp_path: Path) -> Callable[..., Any]:
    def run(*settings: str, model: Path = byte_model, objective: str = "emo", more: tuple[str, ...] = ()) -> Any:
        defaults = {"recipe.batch": "8", "recipe.epochs": "1", "recipe.max_length": "512", "corpus": "own"}
        chosen = defaults | dict(setting.split("=", 1) for setting in settings)
        sets = [f"{name}={value}" for name, value in chosen.items()]
        given = [word for setting in sets for word in ("--set", setting)]
        where = ("--data-dir", answers, "--runs", tmp_path / "runs", "--device", "cpu", "--offline", "--json")
        recipe = ("--recipe", "alpaca-gpt4", "--objective", objective, "--seed", 0)
        return command("train", "--model", model, *recipe, *where, *given, *more)

    return run


@pytest.mark.parametrize("packing", ["rows", "conversations"])
def test_training_on_responses(packing: str, train: Callable[..., Any], tmp_path: Path) -> None:
    """All of the 58 conversations that are not held out; each target is a byte of a response or its EOS, each epoch."""
    done = train(f"recipe.packing={packing}").ok()
    (folder,) = (tmp_path / "runs" / "train").iterdir()
    summary = json.loads((folder / "training.json").read_text())
    counts = [json.loads((f / "responses.json").read_text()) for f in (tmp_path / "runs" / "corpus").iterdir()]
    assert [sum(count[name] for count in counts) for name in ("shortened", "dropped", "lost")] == [0] * 3
    assert sum(count["blank"] for count in counts) == 1  # nothing is counted to 0
    lengths = [len(" ".join(map(str, range(i)))) + 1 for i in range(1, 60)]
    assert sum(lengths) - 2 * max(lengths) <= summary["tokens"] < sum(lengths)
    assert done.json


@pytest.mark.parametrize(
    "settings",
    [
        ("recipe.packing=rows", "recipe.epochs=1.5", "recipe.accumulation=2"),
        ("recipe.packing=rows", "recipe.epochs=2", "recipe.responses=last", "recipe.max_tokens=2000"),
        ("recipe.packing=conversations", "recipe.batch=2", "recipe.epochs=1.3"),
    ],
)
def test_a_dry_run_has_the_steps_of_the_training(
    settings: tuple[str, ...], train: Callable[..., Any], tmp_path: Path
) -> None:
    (line,) = train(*settings, objective="mle", more=("--dry-run",)).ok().json["plan"]
    train(*settings, objective="mle").ok()
    (folder,) = (tmp_path / "runs" / "train").iterdir()
    log = [json.loads(row) for row in (folder / "log.jsonl").read_text().splitlines()]
    steps = [row for row in log if "grad_norm" in row]
    assert line["steps"] == len(steps) == json.loads((folder / "training.json").read_text())["steps"]
    assert line["steps_at_rate_0"] == sum(row["learning_rate"] == 0 for row in steps)
    assert not line["amount"].startswith("~")


def test_weights_of_the_data_are_another_training(
    train: Callable[..., Any], command: Callable[..., Any], byte_model: Path, answers: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in (answers / "own.train.jsonl").read_text().splitlines()]
    weighed = [{**row, "trust": 0.5 + i % 2} for i, row in enumerate(rows)]
    (answers / "weighed.train.jsonl").write_text("\n".join(map(json.dumps, weighed)))
    for packing in ("rows", "conversations"):
        settings = ("corpus=weighed", f"recipe.packing={packing}", "recipe.accumulation=2")
        train(*settings).ok()
        train(*settings, "recipe.weights=trust").ok()
    folders = sorted((tmp_path / "runs" / "train").iterdir())
    curves = [[json.loads(line) for line in (f / "log.jsonl").read_text().splitlines()] for f in folders]
    weights = [[line["example_weight"] for line in curve if "example_weight" in line] for curve in curves]
    assert sorted(bool(found) for found in weights) == [False, False, True, True]
    assert all(0.5 <= weight <= 1.5 for found in weights for weight in found)
    train("corpus=weighed", "recipe.weights=absent").refused('weighed.train.jsonl:1: "absent" has null')
    (answers / "weighed.train.jsonl").write_text("\n".join(json.dumps({**row, "trust": 0}) for row in rows))
    done = train("corpus=weighed", "recipe.weights=trust")
    assert done.code == 2
    assert 'every "trust" of a target is 0' in done.err


def test_an_objective_reads_a_column(train: Callable[..., Any], answers: Path, tmp_path: Path) -> None:
    """Behaviour log-probabilities far below the model's give each token the largest weight; none, another training."""
    rows = [json.loads(line) for line in (answers / "own.train.jsonl").read_text().splitlines()]
    behaved = []
    for row in rows:
        tokens = len(row["output"].encode()) + 1
        behaved.append({**row, "behavior_log_prob": [[-50.0] * tokens]})
    (answers / "behaved.train.jsonl").write_text("\n".join(map(json.dumps, behaved)))
    settings = ("corpus=behaved", "recipe.columns=[behavior_log_prob]")
    for packing in ("rows", "conversations"):
        train(*settings, f"recipe.packing={packing}", objective="iw-sft(clip=0.5)").ok()
    for folder in (tmp_path / "runs" / "train").iterdir():
        log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
        assert {line["weight"] for line in log if "weight" in line} == {1.5}
    train("corpus=behaved", objective="iw-sft").refused("add --set recipe.columns=[behavior_log_prob]")
    validated = (*settings, "recipe.select=objective")
    train(*validated, objective="iw-sft").refused("reads columns, which validation texts lack")
    train(*validated, objective="psft").refused("the loss of psft changes over the training")
    train("corpus=behaved", "recipe.columns=[labels]", objective="mle").refused("`columns` has 'labels'")
    del behaved[3]["behavior_log_prob"][0][0]
    (answers / "behaved.train.jsonl").write_text("\n".join(map(json.dumps, behaved)))
    done = train(*settings, objective="iw-sft")
    assert done.code == 2
    assert 'behaved.train.jsonl:4: "behavior_log_prob" has 5 numbers for 6 tokens' in done.err


def test_chat_templates_decide_the_rows(train: Callable[..., Any], byte_model: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    for name, template in (("one", CHAT), ("two", CHAT.replace("<", "["))):
        (tmp_path / name).mkdir()
        for file in byte_model.iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path / name)
        train("recipe.template=chat", model=tmp_path / name).ok()
    assert len(list((tmp_path / "runs" / "corpus").iterdir())) == 4


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (CHAT.replace("{{ eos_token }}", ""), "writes nothing after a response"),
        ("{# nothing #}", "the chat template does not write the content of a response"),
        ("{{ 'x' * 900000000 }}", "The chat template of the tokenizer writes more than"),
        ("{% for", "The chat template of the tokenizer is not valid"),
    ],
)
def test_a_template_that_cannot_be_trained_on_is_refused_in_a_dry_run(
    template: str, message: str, train: Callable[..., Any], byte_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(byte_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(byte_model)
    tokenizer.chat_template = template
    tokenizer.save_pretrained(tmp_path / "model")
    train("recipe.template=chat", model=tmp_path / "model", more=("--dry-run",)).refused(message)


@pytest.mark.parametrize(
    ("settings", "objective", "message"),
    [
        (["recipe.template=chat"], "mle", "Take the Alpaca prompt, or a chat model."),
        (
            ["recipe.packing=blocks"],
            "mle",
            "`template` is alpaca, and blocks cut conversations; set packing to rows or",
        ),
        (["recipe.template=none"], "mle", 'there is no column "text"'),
        (
            ["recipe.template=none", "recipe.weights=w", "recipe.packing=blocks"],
            "mle",
            "w have numbers for whole texts, and blocks cut them; set packing to rows",
        ),
        (["recipe.ends=true"], "mle", "`ends` is for texts, and `template` decides it for conversations"),
        (
            ["recipe.packing=conversations"],
            "unlikelihood",
            "unlikelihood reads whole rows, in which it would mix conversations",
        ),
        (["corpus=none-such"], "mle", "There is no corpus of conversations 'none-such'"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    settings: list[str], objective: str, message: str, train: Callable[..., Any], tmp_path: Path
) -> None:
    train(*settings, objective=objective).refused(message)
    assert not (tmp_path / "runs" / "train").exists()


def test_the_tokens_with_loss_are_shown(command: Callable[..., Any], byte_model: Path, answers: Path) -> None:
    """Each byte of the response and its EOS, and nothing of the prompt."""
    given = ("alpaca-gpt4", "--train", "--model", byte_model, "--data-dir", answers, "--set", "corpus=own")
    (row,) = command("prompts", *given, "--json").ok().json
    texts = ["".join(t["text"] for t in row["tokens"] if t["loss"] is loss) for loss in (False, True)]
    assert texts[0].endswith("### Response:")
    assert texts[1] == "0<eos>"
    assert "loss" in command("prompts", *given, "--count", 2).ok().out
    command("prompts", "lm-finetune", "--train", "--model", byte_model).refused("lm-finetune trains on texts")
