"""GGUF files: what transformers reads from them, in a folder that loads like any other."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest
import torch

from emobench.core.errors import ModelError
from emobench.models.catalog import find_model
from emobench.models.gguf import MAGIC, convert_gguf
from emobench.models.model import Model
from emobench.models.packaged import gguf_folder

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed: pip install 'emobench[models]'")

WIDTH, HEADS, LAYERS = 32, 4, 2
WORDS = ["<|endoftext|>", "<s>", "</s>", *(chr(code) for code in range(33, 127)), "Ġ", "Ċ", "he", "th"]


@pytest.fixture(scope="module")
def gguf_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A llama of two layers, quantized to 8 bits, as llama.cpp writes it."""
    file = tmp_path_factory.mktemp("gguf") / "tiny.Q8_0.gguf"
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(2 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(WORDS)
    writer.add_token_types([gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.NORMAL] * (len(WORDS) - 3))
    writer.add_token_merges(["h e", "t h"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    random = torch.Generator().manual_seed(0)

    def add(name: str, *shape: int) -> None:
        values = torch.randn(*shape, generator=random).numpy()
        if len(shape) == 1:
            writer.add_tensor(name, values)
        else:
            quantized = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, quantized, raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    add("token_embd.weight", len(WORDS), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        for part, shape in (("gate", (64, WIDTH)), ("up", (64, WIDTH)), ("down", (WIDTH, 64))):
            add(f"blk.{layer}.ffn_{part}.weight", *shape)
        add(f"blk.{layer}.attn_norm.weight", WIDTH)
        add(f"blk.{layer}.ffn_norm.weight", WIDTH)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_weights_are_those_that_transformers_reads(gguf_file: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    out = convert_gguf(gguf_file, tmp_path / "out")
    loaded = Model(str(out)).load()
    expected = AutoModelForCausalLM.from_pretrained(
        gguf_file.parent, gguf_file=gguf_file.name, dtype=torch.float32
    ).state_dict()
    assert loaded.model.state_dict().keys() == expected.keys()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.model.state_dict().items())
    assert loaded.tokenizer.decode(loaded.tokenizer("the 12")["input_ids"]) == "the 12"


def test_a_file_is_converted_once_and_always_to_the_same_bytes(gguf_file: Path, tmp_path: Path, cache: Path) -> None:
    first = gguf_folder(gguf_file)
    assert first.is_relative_to(cache)
    (first / "mark").touch()
    assert (gguf_folder(gguf_file) / "mark").is_file()
    again = convert_gguf(gguf_file, tmp_path / "again")
    assert Model(str(first)).identity == Model(str(again)).identity


def test_a_gguf_file_is_a_model(gguf_file: Path, cache: Path) -> None:
    source = find_model(str(gguf_file), offline=True)
    assert (source.kind, source.name) == ("local", "tiny.Q8_0")
    assert Path(source.source).is_relative_to(cache)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not a GGUF file: it begins with b''"),
        (b"PK\x03\x04", "is not a GGUF file"),
        (b"GGUF" + bytes(64), "could not be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(data)
    with pytest.raises(ModelError, match=message):
        convert_gguf(file, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    "header",
    [
        struct.pack("<IQQ", 3, 1, 2**40),
        struct.pack("<IQQ", 3, 2**40, 0),
        struct.pack("<IQQ", 3, 0, 9000) + bytes(9000),
        struct.pack("<IQQ", 3, 0, 1) + _text(b"a") + struct.pack("<IIQ", 9, 8, 2**40),
        struct.pack("<IQQ", 3, 0, 1) + _text(b"a") + struct.pack("<IIQ", 9, 4, 2**62),
        struct.pack("<IQQ", 3, 0, 1) + _text(b"a") + struct.pack("<IIQ", 9, 9, 2**40),
        struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63),
        struct.pack("<IQQ", 3, 0, 1) + _text(b"a") + struct.pack("<I", 77),
        struct.pack("<IQQ", 3, 1, 0) + _text(b"w") + struct.pack("<I", 2**31),
        struct.pack(">IQQ", 3, 1, 2**40),
        struct.pack("<IQ", 3, 1),
        b"",
    ],
)
def test_a_header_that_promises_more_than_the_file_holds_is_refused_at_once(header: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(MAGIC + header)
    began = time.monotonic()
    with pytest.raises(ModelError, match=r"model\.gguf"):
        convert_gguf(file, tmp_path / "out")
    assert time.monotonic() - began < 5
    assert not (tmp_path / "out").exists()
