"""Tasks of kind `surrogate` through the command line, and which texts they use."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import GPT2LMHeadModel

from emobench.core.errors import DataError
from emobench.data.texts import Texts
from emobench.kinds.surrogate.evaluate import usable_texts
from emobench.kinds.surrogate.kind import SurrogateProtocol
from emobench.metrics.distances import COLUMNS
from emobench.models.model import Model

SUITE = ("--suite", "figure-2", "--set", "tasks=wikitext2")


@pytest.fixture(scope="module")
def evaluate(command: Callable[..., Any], small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("work")
    places = ("--runs", folder / "runs", "--leaderboard", folder / "board", "--offline")

    def run(model: Path, surrogate: object, *more: object, longest: int = 48, data: Path = small_data) -> Any:
        chosen = ("--set", f"surrogate.model={surrogate}", "--set", f"surrogate.max_tokens={longest}")
        return command("evaluate", "--model", model, *SUITE, *chosen, "--data-dir", data, *places, "-q", *more)

    run.folder = folder  # type: ignore[attr-defined]
    return run


def test_a_model_against_itself_and_against_itself_by_name(evaluate: Any, small_model: Path, small_data: Path) -> None:
    values = []
    for name in ("pretrained", small_model):
        (entry,) = evaluate(small_model, name, "--json").ok().json["entries"]
        values.append({key: metric["mean"] for key, metric in entry["metrics"].items()})
    assert values[0] == values[1]
    names = ("forward_kl", "reverse_kl", "total_variation")
    assert [values[0][f"wikitext2/{name}"] for name in names] == [0.0] * 3
    assert values[0]["wikitext2/forward_cross_entropy"] == values[0]["wikitext2/target_entropy"] > 1


def test_equal_texts_are_one_unit(evaluate: Any, small_model: Path, small_data: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (small_data / "wikitext2.validation.jsonl").read_text().splitlines()]
    texts = [text for i in range(12) for text in (f"= Title {i} =", rows[i % 5]["text"])]
    (tmp_path / "wikitext2.validation.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    (entry,) = evaluate(small_model, "pretrained", "--json", data=tmp_path).ok().json["entries"]
    found = entry["metrics"]["wikitext2/forward_kl"]
    assert (found["n"], found["units"]) == (12, 5)


def test_another_vocabulary_and_a_context_that_is_too_short_are_refused(
    evaluate: Any, small_model: Path, byte_model: Path
) -> None:
    evaluate(small_model, byte_model).refused(
        f"the surrogate {byte_model} has others than {small_model.name}", "--set surrogate.model=MODEL", "pretrained"
    )
    evaluate(small_model, "pretrained", longest=49).refused("reads at most 48; add --set surrogate.max_tokens=48")


def test_short_and_long_texts_are_skipped(small_model: Path) -> None:
    tokenizer = Model(str(small_model)).tokenizer
    texts = Texts(
        "c", "validation", ["", "bar", "bar bas", "bar " * 9, "a b c d", "bar bas bal", "bar bar"], "sha", "x"
    )
    rules = SurrogateProtocol(min_words=1, max_tokens=4)
    rows = usable_texts(texts, tokenizer, rules, limit=None)
    assert {key: len(ids) for key, ids in rows.items()} == {"2": 2, "4": 4, "5": 3, "6": 2}
    # Words are split at single spaces, as in the official code: "bar " * 9 has ten of them.
    rows = usable_texts(texts, tokenizer, SurrogateProtocol(min_words=3, max_tokens=9), limit=2)
    assert list(rows) == ["3", "4"]
    with pytest.raises(DataError, match=r"None of the 7 texts of c\.validation has at least 20 words"):
        usable_texts(texts, tokenizer, SurrogateProtocol(), limit=None)


def test_distances_that_are_not_finite_are_missing_with_the_reason(
    evaluate: Any, small_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(small_model, broken)
    model = GPT2LMHeadModel.from_pretrained(small_model)
    model.transformer.wpe.weight.data[14:] = float("nan")  # the check of the head reads fewer positions
    model.save_pretrained(broken)
    (entry,) = evaluate(broken, small_model, "--json").ok().json["entries"]
    assert not entry["metrics"]
    assert set(entry["missing"]) == {f"wikitext2/{name}" for name in COLUMNS}
    assert all("logits are not" in reason for reason in entry["missing"].values())
