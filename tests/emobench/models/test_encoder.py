"""Sentence encoders: what is read, what is refused, and vectors in the order of the texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from emobench.core.errors import Missing, ModelError
from emobench.models.encoder import BATCH, MODULES, find_encoder

TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that sentence-transformers saved: static vectors of words, the mean of which is a text's."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{place}": place for place in range(30)}
    tokenizer = Tokenizer(models.WordLevel({**words, "[UNK]": 30}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).normal(size=(31, 16)).astype(np.float32)
    folder = tmp_path_factory.mktemp("encoder") / "static"
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu").save(str(folder))
    return folder


@pytest.fixture
def copied(encoder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(encoder, tmp_path / "copied"))


def test_vectors_come_in_the_order_of_the_texts_with_progress(encoder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    texts = [" ".join(f"w{(place * word) % 30}" for word in range(1, 2 + place % 9)) for place in range(2 * BATCH + 6)]
    steps: list[tuple[int, int]] = []
    found = find_encoder(str(encoder), offline=True)
    vectors_ND = found.encode(texts, lambda done, total: steps.append((done, total)))
    alone = np.stack([SentenceTransformer(str(encoder), device="cpu").encode(text) for text in texts])
    assert vectors_ND.dtype == np.float32
    assert vectors_ND == pytest.approx(alone, abs=1e-6)
    assert steps == [(32, 70), (64, 70), (70, 70)]


def test_a_folder_is_known_by_the_files_that_make_it(copied: Path) -> None:
    def facts() -> object:
        return find_encoder(str(copied), offline=True).identity

    before = facts()
    names = {
        path.relative_to(copied).as_posix() for path in copied.rglob("*") if path.suffix in (".json", ".safetensors")
    }
    assert set(before["files"]) == names  # type: ignore[index]
    (copied / "notes.md").write_text("mine")
    assert facts() == before
    (file,) = copied.rglob("model.safetensors")
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert facts() != before


def refused(folder: Path) -> str:
    with pytest.raises(ModelError) as error:
        find_encoder(str(folder), offline=True)
    return str(error.value)


@pytest.mark.parametrize("modules", ["{", "[1]", json.dumps([{**TRANSFORMER, "path": "../elsewhere"}]), None])
def test_a_folder_that_is_no_sentence_encoder_is_refused(modules: str | None, copied: Path) -> None:
    if modules is None:
        (copied / MODULES).unlink()
    else:
        (copied / MODULES).write_text(modules)
    assert MODULES in refused(copied)


def test_code_and_pickles_are_refused(copied: Path) -> None:
    (copied / MODULES).write_text(json.dumps([{**TRANSFORMER, "type": "modeling_mine.Mine"}]))
    assert "needs code of its own (modeling_mine.Mine), which is not run" in refused(copied)
    (copied / MODULES).write_text(json.dumps([TRANSFORMER]))
    for file in copied.rglob("*.safetensors"):
        file.rename(file.with_name("pytorch_model.bin"))
    assert "has no safetensors weights in" in refused(copied)


def test_what_does_not_load_gets_a_sentence(copied: Path) -> None:
    (file,) = copied.rglob("model.safetensors")
    file.write_bytes(b"no weights")
    with pytest.raises(ModelError, match=rf"^The sentence encoder {copied} does not load from {copied} \(Error"):
        find_encoder(str(copied), offline=True).encode(["w1"])


def test_an_encoder_that_is_not_available_names_its_setting_and_what_to_do_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("emobench.models.encoder.packaged_folder", lambda name: None)
    with pytest.raises(ModelError, match="no/ne/at/all is not a folder, a hub id"):
        find_encoder("no/ne/at/all", offline=True)
    with pytest.raises(Missing) as missing:
        find_encoder("all-mpnet-base-v2", offline=True)
    assert missing.value.item == "sentence encoder all-mpnet-base-v2"
    assert missing.value.source == "sentence-transformers/all-mpnet-base-v2"
    assert missing.value.size == 4 * 109_486_464
