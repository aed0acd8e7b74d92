"""Convert a GGUF file, llama.cpp's format, to a folder that transformers saves: dequantized float32 safetensors.

A quantized file holds other weights than the model that it was made from. What is trained and evaluated is the model
with the quantized weights; the digests of the converted files identify it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from emobench.errors import ModelError, first_line
from emobench.extras import require
from emobench.files import new_folder
from emobench.models.quiet import silent_libraries

MAGIC = b"GGUF"
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
    require("gguf")


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
