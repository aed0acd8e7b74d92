"""The main job on a real pre-trained model of LLaMA's architecture: train with EMO, sample, answer with 8 shots."""

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
WRITING = (
    *("--suite", "lm-quick", "--limit", 4, *FEW_STEPS, "--set", "generation.test_blocks=2"),
    *("--set", "generation.max_length=32", "--set", "generation.prefix=4", "--set", "generation.continuation=12"),
)
ANSWERING = (
    *("--suite", "nlu", "--set", "tasks=trec", "--limit", 2, *FEW_STEPS, "--set", "corpus=wikitext2"),
    *("--set", "icl.retriever=bm25"),
)


@pytest.fixture(scope="module")
def entry(
    command: Callable[..., Any], small_data: Path, labelled: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Any]:
    folder = tmp_path_factory.mktemp("real")

    def run(*arguments: object) -> Any:
        given = ("--model", MODEL, "--data-dir", small_data, "--data-dir", labelled, "--offline", "--quiet")
        places = ("--runs", folder / "runs", "--leaderboard", folder / "board", "--json")
        (entry,) = command("run", *given, *arguments, *places, "--objective", "emo").ok().json["entries"]
        assert entry["model"]["name"] == MODEL
        assert entry["model"]["parameters"] == PARAMETERS
        return entry

    return run


def test_it_is_trained_and_writes(entry: Callable[..., Any]) -> None:
    metrics = entry(*WRITING)["metrics"]
    assert 1 < metrics["lm-quick/ppl_test"]["mean"] < 5000
    assert metrics["lm-quick/entropy"]["mean"] > 0


def test_adapters_are_trained_and_it_answers_with_eight_shots(entry: Callable[..., Any]) -> None:
    found = entry(*ANSWERING)
    assert found["metrics"]["trec/accuracy"]["n"] == 2
    assert 0 <= found["metrics"]["trec/accuracy"]["mean"] <= 1
