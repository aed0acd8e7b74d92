"""A real pre-trained model of LLaMA's architecture: train adapters with EMO, answer with 8 shots.

`tests/benchmarks evidence.smollm2` trains all its weights, and samples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emobench.models.packaged import PACKAGED, installed_pieces

MODEL = "smollm2-135m-instruct"
PARAMETERS = 134_515_008

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        installed_pieces(PACKAGED[MODEL]) is None, reason=f"SmolLM2 is not installed: {PACKAGED[MODEL].install}"
    ),
]

FEW_STEPS = ("--set", "recipe.max_tokens=128", "--set", "recipe.max_length=32", "--set", "recipe.batch=2")
ANSWERING = (
    *("--suite", "nlu", "--set", "tasks=trec", "--limit", 2, *FEW_STEPS, "--set", "corpus=wikitext2"),
    *("--set", "icl.retriever=bm25"),
)


def test_adapters_are_trained_and_it_answers_with_eight_shots(
    command: Callable[..., Any], small_data: Path, labelled: Path, tmp_path: Path
) -> None:
    given = ("--model", MODEL, "--data-dir", small_data, "--data-dir", labelled, "--offline", "--quiet")
    places = ("--runs", tmp_path / "runs", "--leaderboard", tmp_path / "board", "--json")
    (entry,) = command("run", *given, *ANSWERING, *places, "--objective", "emo").ok().json["entries"]
    assert entry["model"]["name"] == MODEL
    assert entry["model"]["parameters"] == PARAMETERS
    assert entry["metrics"]["trec/accuracy"]["n"] == 2
    assert 0 <= entry["metrics"]["trec/accuracy"]["mean"] <= 1
