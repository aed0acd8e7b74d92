"""Convert a GGUF file, llama.cpp's format, to a folder that transformers saves: dequantized float32 safetensors.

A quantized file holds other weights than the model that it was made from. What is trained and evaluated is the model
with the quantized weights; the digests of the converted files identify it.
"""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path
from typing import Any, NoReturn

from emobench.core.errors import ModelError, first_line
from emobench.core.extras import require
from emobench.core.files import new_folder
from emobench.models.quiet import silent_libraries

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_KEYS, MOST_TENSORS = 10_000, 1_000_000
TEXT, ARRAY = 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value of a type of fixed size."""
VERSION_FIELD = "transformers_version"
"""A field of config.json that says who wrote it and nothing about the model."""


def convert_gguf(file: Path, out: Path) -> Path:
    """Write the model in a GGUF file to the new folder `out`, and return `out`: it is complete or absent.

    The same file gives the same bytes with the same transformers and gguf. Raises ModelError if the file is not GGUF,
    if its architecture or its quantization cannot be read, if the package `gguf` is missing, or if `out` exists.
    """
    require_gguf(file)
    with new_folder(out) as folder, silent_libraries():
        model, tokenizer = _read(file)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        _drop_version(folder / "config.json")
        _drop_version(folder / "generation_config.json")
    return out


def require_gguf(file: Path) -> None:
    """Raise ModelError unless a file begins as GGUF does and the package that reads it is installed."""
    try:
        with file.open("rb") as stream:
            start = stream.read(len(MAGIC))
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}.") from None
    if start != MAGIC:
        raise ModelError(f"{file} is not a GGUF file: it begins with {start!r}; expected {MAGIC!r}. Copy it again.")
    try:
        _check_counts(file)
    except (ValueError, struct.error) as error:
        raise ModelError(f"{file} could not be read: {error}. Copy it again.") from None
    require("gguf")


def _check_counts(file: Path) -> None:
    """Raise ValueError or struct.error for a header that promises more than the file holds.

    Readers loop over what the counts promise. The format: github.com/ggml-org/ggml/blob/master/docs/gguf.md.
    """
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
        version, tensors, keys = struct.unpack_from("<IQQ", content, len(MAGIC))
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}; expected {' or '.join(map(str, VERSIONS))}, little-endian")
        if keys > MOST_KEYS or tensors > MOST_TENSORS:
            raise ValueError(f"it promises {keys:,} keys and {tensors:,} tensors, which no model has")
        place = len(MAGIC) + struct.calcsize("<IQQ")
        for _ in range(keys):
            place = _after_value(content, _after_text(content, place))
        for _ in range(tensors):
            place = _after_text(content, place)
            (dimensions,) = struct.unpack_from("<I", content, place)
            place = _inside(content, place + struct.calcsize("<I"), dimensions * 8 + struct.calcsize("<IQ"))


def _after_text(content: mmap.mmap, place: int) -> int:
    (length,) = struct.unpack_from("<Q", content, place)
    return _inside(content, place + 8, length)


def _after_value(content: mmap.mmap, place: int) -> int:
    (kind,) = struct.unpack_from("<I", content, place)
    place += 4
    if kind == TEXT:
        return _after_text(content, place)
    if kind != ARRAY:
        return _inside(content, place, SIZES[kind] if kind in SIZES else _unknown(kind))
    inner, count = struct.unpack_from("<IQ", content, place)
    place += struct.calcsize("<IQ")
    if inner in SIZES:
        return _inside(content, place, count * SIZES[inner])
    if inner != TEXT:
        _unknown(inner)
    for _ in range(min(count, len(content))):  # each text takes 8 bytes: the file ends before a count that is too large
        place = _after_text(content, place)
    return place


def _inside(content: mmap.mmap, place: int, size: int) -> int:
    if place + size > len(content):
        raise ValueError("it ends within its header")
    return place + size


def _unknown(kind: int) -> NoReturn:
    raise ValueError(f"it has a value of the unknown type {kind}")


def _read(file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where)
        model: Any = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    except Exception as error:  # a damaged or unsupported file can raise anything
        raise ModelError(
            f"{file} could not be read: {first_line(error)}. Expected a causal LM of an architecture that transformers "
            "reads from GGUF; or give a folder with safetensors."
        ) from None
    # The weights are plain tensors now; transformers would refuse to save what it takes for quantized.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, tokenizer


def _drop_version(file: Path) -> None:
    if file.is_file():
        config = json.loads(file.read_text(encoding="utf-8"))
        config.pop(VERSION_FIELD, None)
        file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
