"""Packed corpora: made once, the same in every process, and made again where something that decides them changes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emobench.core.errors import ConfigError
from emobench.data.packing import Packed, pack_blocks, pack_rows
from emobench.models.folder import tokenizer_digest
from emobench.runs.dry_run import make_outline
from emobench.runs.execution.reporter import Silent
from emobench.runs.planning.plan import make_plan
from emobench.runs.planning.request import Request
from emobench.runs.stages import corpora
from emobench.runs.stages.corpora import PackedCorpora
from emobench.runs.stages.stage import Stages
from emobench.runs.stages.train import PlannedTraining

Ask = Callable[..., Request]


@pytest.fixture
def ask(tmp_path: Path, small_model: Path, small_data: Path) -> Ask:
    def make(*, model: Path = small_model, max_length: int = 32, **given: Any) -> Request:
        asked: dict[str, Any] = {"objectives": ("mle",), "seeds": (0,), "data_dirs": (small_data,), "offline": True}
        settings = {"recipe": {"max_length": max_length, **given.pop("recipe", {})}}
        return Request(
            recipe="lm-finetune", model=str(model), settings=settings, runs=tmp_path / "runs", **{**asked, **given}
        )

    return make


def training(request: Request) -> PlannedTraining:
    (found, *_) = make_plan(request).trainings()
    return found


def same(one: Packed, other: Packed) -> bool:
    pairs = ((one.tokens, other.tokens), (one.labels, other.labels), (one.offsets, other.offsets))
    return all(np.array_equal(*pair) for pair in pairs)


def no_packing(*_: Any, **__: Any) -> None:
    raise AssertionError("packed again")


def test_a_corpus_is_packed_once_for_all_processes(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = training(ask())
    texts, tokenizer = planned.texts["train"].texts, planned.model.tokenizer
    expected = pack_blocks(texts, tokenizer, length=32, eos_between=planned.recipe.ends)
    stages = Stages(ask().runs)
    assert same(PackedCorpora(stages, Silent()).rows(planned.corpora["train"]), expected)
    monkeypatch.setattr(corpora, "pack_blocks", no_packing)
    again = PackedCorpora(Stages(ask().runs), Silent()).rows(
        training(ask(seeds=(7,), objectives=("emo",))).corpora["train"]
    )
    assert same(again, expected)
    assert again.target_count == expected.target_count
    assert not again.tokens.flags.writeable
    assert [row["input_ids"].tolist() for row in again] == [row["input_ids"].tolist() for row in expected]


def test_rows_with_masked_prompts_come_back_as_they_were(tmp_path: Path, ask: Ask) -> None:
    planned = training(ask())
    texts = [f"{text} {planned.texts['train'].texts[0]}" for text in planned.texts["train"].texts]
    marker = planned.texts["train"].texts[0].split(" ")[0]
    made = pack_rows(texts, planned.model.tokenizer, length=32, ends=True, mask_until=marker)
    assert (made.labels != made.tokens).any()
    made.save(tmp_path)
    assert same(Packed.load(tmp_path), made)


@pytest.mark.parametrize(
    ("setting", "split", "other"),
    [("max_tokens", "train", "validation"), ("validation_tokens", "validation", "train")],
)
def test_a_limit_takes_the_first_rows_of_the_same_stage(setting: str, split: str, other: str, ask: Ask) -> None:
    whole, cut = training(ask()), training(ask(recipe={setting: 160}))
    assert whole.corpora[split].key == cut.corpora[split].key
    assert whole.key != cut.key
    packed = PackedCorpora(Stages(ask().runs), Silent())
    assert len(packed.rows(cut.corpora[split])) == 5
    assert len(packed.rows(whole.corpora[split])) > 5
    assert len(packed.rows(cut.corpora[other])) == len(packed.rows(whole.corpora[other]))


def test_a_limit_that_is_not_given_is_in_no_key(ask: Ask) -> None:
    assert "validation_tokens" not in training(ask()).facts["recipe"]
    with pytest.raises(ConfigError, match="validation_tokens"):
        training(ask(recipe={"validation_tokens": 31}))


def test_what_decides_the_rows_is_in_the_key(ask: Ask, tmp_path: Path, small_model: Path, byte_model: Path) -> None:
    def key(**given: Any) -> str:
        return training(ask(**given)).corpora["train"].key

    other_weights = shutil.copytree(small_model, tmp_path / "other")
    (other_weights / "generation_config.json").write_text("{}")
    assert key() == key(seeds=(3,)) == key(objectives=("emo",)) == key(model=other_weights)
    assert key() == key(recipe={"learning_rate": 1e-3})
    assert len({key(), key(max_length=16), key(model=byte_model), key(recipe={"corpus": "other"})}) == 4
    assert key() != training(ask()).corpora["validation"].key


def test_a_tokenizer_is_what_it_does_and_not_how_it_was_called(ask: Ask) -> None:
    tokenizer = training(ask()).model.tokenizer
    before = tokenizer_digest(tokenizer)
    tokenizer(["a b c"], truncation=True, max_length=2)
    assert tokenizer_digest(tokenizer) == before
    tokenizer.add_tokens(["<new>"])
    assert tokenizer_digest(tokenizer) != before


def test_what_was_interrupted_or_altered_is_made_anew(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    planned, stages = training(ask()), Stages(ask().runs)

    def killed(packed: Packed, folder: Path) -> None:
        np.save(folder / "tokens.npy", packed.tokens[:5])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Packed, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            PackedCorpora(stages, Silent()).rows(planned.corpora["train"])
    assert not stages.is_finished(planned.corpora["train"])
    first = PackedCorpora(stages, Silent()).rows(planned.corpora["train"])
    expected = replace(first, tokens=first.tokens.copy(), labels=first.labels.copy())
    file = stages.folder(planned.corpora["train"]) / "tokens.npy"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert same(PackedCorpora(Stages(ask().runs), Silent()).rows(planned.corpora["train"]), expected)


def test_a_dry_run_reads_packed_corpora_and_writes_none(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    request = ask()
    first = make_outline(request)
    assert not request.runs.exists()
    for corpus in training(request).corpora.values():
        PackedCorpora(Stages(request.runs), Silent()).rows(corpus)
    monkeypatch.setattr(corpora, "pack_blocks", no_packing)
    assert make_outline(request).lines == first.lines
