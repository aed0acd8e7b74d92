"""`emobench answers` of a trained model: seeds are pooled, the newest entry is meant, its command shows a prompt."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RULES = ("--suite", "nlu", "--set", "tasks=trec", "--set", "icl.retriever=bm25", "--limit", 24)
TRAINED = (
    "--set",
    "corpus=wikitext2",
    "--set",
    "recipe.max_length=48",
    "--set",
    "recipe.lora=false",
    "--set",
    "recipe.epochs=1",
)
SEEDS = ("--objective", "mle", "--seed", 0, "--seed", 1)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("answers")


@pytest.fixture(scope="module")
def entries(
    command: Callable[..., Any], byte_model: Path, labelled: Path, small_data: Path, place: Path
) -> list[dict[str, Any]]:
    """Two entries of one objective, the older one first; both have two seeds."""
    data = ("--data-dir", labelled, "--data-dir", small_data)
    given = ("--model", byte_model, *data, "--runs", place / "runs", "--leaderboard", place / "board", "--offline")
    found = []
    for shots in (3, 2):
        done = command("run", *given, *RULES, *TRAINED, *SEEDS, "--set", f"icl.shots={shots}", "--quiet", "--json").ok()
        found += done.json["entries"]
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def answers(command: Callable[..., Any], place: Path) -> Callable[..., Any]:
    return lambda *given: command("answers", *given, "--leaderboard", place / "board", "--runs", place / "runs")


def pasted(shown: str) -> list[str]:
    (line,) = (line for line in shown.splitlines() if "emobench prompts" in line)
    return shlex.split(line.partition("emobench ")[2])


def test_of_several_entries_the_newest_is_shown_with_its_seeds_pooled(
    answers: Any, entries: Any, require_readable: Callable[[str], None]
) -> None:
    older, newest = entries
    shown = answers("mle").out
    require_readable(shown)
    assert older["id"][:6] in shown.splitlines()[0]
    title = next(line for line in shown.splitlines() if line.startswith("trec · "))
    assert f"nlu v1 · {newest['model']['name']} · mle [{newest['id'][:6]}] · 2 seeds pooled · 48 examples" in title
    mean = newest["metrics"]["trec/accuracy"]["mean"]
    assert f"accuracy {100 * mean:.1f} %" in title
    assert sum(line.startswith("class") for line in shown.splitlines()) == 1
    plain = answers("mle", "--json").json
    assert [one["seed"] for one in plain["answers"]] == [0, 1]
    assert {one["entry"] for one in plain["answers"]} == {newest["id"]}
    assert "older" not in answers(older["id"]).out


def test_the_command_below_shows_the_trained_models_prompt(
    answers: Any, command: Any, place: Path, entries: Any, labelled: Path
) -> None:
    shown = answers(entries[1]["id"]).out
    assert "(with the --data-dir and --set icl.* of the run)\n" in shown
    rules = ("--set", "icl.retriever=bm25", "--set", "icl.shots=2", "--set", "icl.limit=24")
    words = [*pasted(shown), "--data-dir", labelled, *rules]
    model = Path(words[words.index("--model") + 1])
    assert model.parent.parent == place / "runs/train"
    done = command(*words, "--json", "--quiet").ok()
    assert done.json["protocol"] == entries[1]["protocols"]["trec"]
    (prompt,) = done.json["prompts"]
    line = next(line for line in shown.splitlines() if line.startswith(prompt["id"]))
    assert line.split()[1:3] == [prompt["right"], prompt["answer"]]
    answered = next(label for label in prompt["labels"] if label["name"] == prompt["answer"])
    assert f"{100 * answered['posterior']:.1f} %" in line
    assert "posterior: the probability of the answer given by the summed losses" in shown


def test_a_trained_model_that_is_gone_is_said(place: Path, entries: Any) -> None:
    from emobench.leaderboard.query.rows import select
    from emobench.runs.inspect.answers import find_answers

    (entry,) = select(entries[1]["id"], place / "board")
    folder = place / "runs/train" / json.loads((_score(place, entry) / "stage.json").read_text())["subject"]["training"]
    (folder / "model").rename(folder / "away")
    try:
        found = find_answers(entry, place / "runs", [])
    finally:
        (folder / "away").rename(folder / "model")
    assert f"{folder}/model is missing: the answers are those of the model before its training" in found[0].remarks
    assert f"--model {entry.model.name} " in found[0].prompts


def _score(place: Path, entry: Any) -> Path:
    facts = json.loads((place / "runs/examples" / entry.runs[0].key / "stage.json").read_text())
    return place / "runs/score" / facts["scores"][0]
