"""The models that the harness makes: what identifies them, and that one of them learns in context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from emobench.core.errors import DataError
from emobench.data import bpe
from emobench.data.oracle.language import SECTION_NAMES, label_words
from emobench.kinds.icl.rules import IclProtocol
from emobench.registry import find_recipe, find_task
from emobench.runs.planning.ingredients import base_model
from emobench.runs.planning.request import Request
from emobench.runs.planning.tiny_models import TINY_MODELS, tokenizer_of, write_untrained


def test_what_tiny_oracle_is_made_from_is_what_it_was() -> None:
    """Who has made it before need not make it again."""
    facts = {"architecture": "gpt2", "context": 64, "width": 96, "layers": 3, "heads": 4, "threads": 1}
    assert TINY_MODELS["tiny-oracle"].facts == facts


@pytest.fixture
def english(tmp_path: Path) -> Path:
    """A folder with a webtext of few words."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split, count in (("train", 300), ("validation", 40)):
        lines = [
            json.dumps({"text": f"The {i}th word is Naïve{i % 7}, said nobody {i % 11} times."}) for i in range(count)
        ]
        (folder / f"webtext.{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def request(*folders: Path, **given: Any) -> Request:
    return Request(suite="generation", data_dirs=folders, offline=True, **given)


@pytest.mark.parametrize("name", TINY_MODELS)
def test_a_tiny_model_is_what_it_says(name: str, english: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny = TINY_MODELS[name]
    tokenizer = tokenizer_of(tiny, request(english).data_dirs)
    write_untrained(tiny, tmp_path / "model", tokenizer)
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert sum(weight.numel() for weight in model.parameters()) == tiny.parameters(len(tokenizer))
    assert AutoTokenizer.from_pretrained(tmp_path / "model").get_vocab() == tokenizer.get_vocab()
    assert model.config.eos_token_id == tokenizer.eos_token_id == len(tokenizer) - 1
    assert model.config.n_positions == tiny.context == find_recipe(tiny.recipe).max_length
    wide = float(model.transformer.wte.weight.detach().std())
    assert wide == pytest.approx(tiny.more.get("initializer_range", 0.02), rel=0.05)


def test_tiny_lm_is_another_model_with_other_texts(english: Path, tmp_path: Path) -> None:
    """Its texts, in the data folders, are part of what identifies it, and its tokenizer is the same each time."""
    first, again = (base_model("tiny-lm", request(english)) for _ in range(2))
    assert first.made_by.stage.key == again.made_by.stage.key
    bpe._train.cache_clear()
    assert again.tokenizer.get_vocab() == tokenizer_of(TINY_MODELS["tiny-lm"], request(english).data_dirs).get_vocab()
    other = tmp_path / "other"
    other.mkdir()
    for file in english.iterdir():
        (other / file.name).write_text(file.read_text().replace("nobody", "somebody"))
    assert base_model("tiny-lm", request(other)).made_by.stage.key != first.made_by.stage.key


def test_tiny_lm_needs_english_in_the_data_folders(english: Path) -> None:
    with pytest.raises(DataError, match=r"no webtext\.train\.jsonl; add --data-dir DIR.* or give another model"):
        base_model("tiny-lm", request())
    (english / "webtext.validation.jsonl").unlink()
    with pytest.raises(DataError, match=r"no webtext\.validation\.jsonl"):
        base_model("tiny-lm", request(english))


def test_the_labels_of_the_task_are_words_of_the_episodes() -> None:
    task = find_task("nlu-tiny")
    assert isinstance(task.protocol, IclProtocol)
    assert tuple(task.protocol.labels) == SECTION_NAMES
    assert set(task.protocol.texts) < set(label_words())
