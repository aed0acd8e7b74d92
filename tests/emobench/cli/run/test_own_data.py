"""A CSV file of 200 labelled reviews gives verdicts: as texts to train on, and as labelled examples in context."""

from __future__ import annotations

import csv
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = {"positive": "warm bright moving superb", "negative": "dull flat tedious clumsy"}
COMMON = ["the", "film", "plot", "cast", "and", "music", "of", "a", "story", "is", "was", "so", "very"]
SUITE = """name: own
version: 1
primary: accuracy
runs:
  - recipe: lm-finetune
    settings: {corpus: "./reviews.csv:review", max_length: 64, learning_rate: 3e-2, epochs: 1, lora: false}
    tasks: [./sentiment.yaml, ./writing.yaml]
"""
WRITING = """name: writing
kind: generation
version: 1
corpus: "./reviews.csv:review"
protocols:
  short: {prefix: 8, continuation: 8, max_length: 64, mauve: {featurizer: pretrained, seeds: [0]}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("own"), random.Random(0)
    with (folder / "reviews.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "sentiment"])
        for number in range(200):
            label = draw.choice(list(WORDS))
            words = draw.choices(COMMON + WORDS[label].split() * 2, k=20)
            writer.writerow([f'{" ".join(words)}, "said" take {number}.', label])
    (folder / "own.yaml").write_text(SUITE)
    (folder / "writing.yaml").write_text(WRITING)
    return folder


def test_200_rows_of_csv_give_verdicts(
    folder: Path, byte_model: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    wrote = command("tasks", "new", "./reviews.csv:review:sentiment", "--out", "sentiment.yaml").ok().out
    assert "2 classes" in wrote
    places = ("--runs", folder / "runs", "--leaderboard", folder / "board")
    given = ("--suite", "./own.yaml", "--model", byte_model, "--objective", "mle", "--objective", "tailr", *places)
    small = ("--set", "icl.retriever=bm25", "--set", "icl.shots=1", "--set", "generation.limit=8", "--offline")
    seeds = ("--seed", 0, "--seed", 1, "--seed", 2)
    plan = command("run", *given, *small, *seeds, "--dry-run").ok().out
    for part in ("170 rows", "10 rows", "20 rows", "half of the rows"):
        assert part in " ".join(plan.split())
    entries = command("run", *given, *small, *seeds, "--quiet", "--json").ok().json["entries"]
    assert str(folder) not in str([entry["recipe"] for entry in entries])
    assert {entry["recipe"]["corpus"] for entry in entries} == {"./reviews.csv:review"}
    compared = command("compare", "tailr", "mle", *places, "--json").ok().json["comparisons"][0]["contrasts"]
    verdicts = {one["metric"]: one["verdict"] for one in compared}
    assert verdicts["sentiment/accuracy"] in ("better", "worse", "tied")
    assert verdicts["writing/ppl_test"] in ("better", "worse", "tied")

    # An entry is run again while its file has the same content.
    again = (
        "rerun",
        entries[0]["id"],
        "--suite",
        "./own.yaml",
        "--model",
        byte_model,
        *places,
        "--offline",
    )
    assert "nothing different here" in command(*again, "--dry-run").ok().err
    kept = (folder / "reviews.csv").read_text()
    (folder / "reviews.csv").write_text(kept.replace("film", "play"))
    command(*again, "--dry-run").refused("./reviews.csv:review")
    (folder / "reviews.csv").unlink()
    command(*again, "--dry-run").refused("there is no reviews.csv here")
    (folder / "reviews.csv").write_text(kept)

    # The same content elsewhere is the same training.
    moved = folder / "moved"
    moved.mkdir()
    for file in [*folder.glob("*.yaml"), folder / "reviews.csv"]:
        (moved / file.name).write_bytes(file.read_bytes())
    trained = sorted((folder / "runs/train").iterdir())
    monkeypatch.chdir(moved)
    command("run", *given, *small, *seeds, "--quiet").ok()
    assert sorted((folder / "runs/train").iterdir()) == trained
