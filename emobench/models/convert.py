"""Convert a `.bin` checkpoint to safetensors. It is read with `weights_only`, so its code is never run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from emobench.core.errors import ModelError, first_line
from emobench.core.files import new_folder
from emobench.models.folder import indexed_files

SINGLE, INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
COPIED = ("*.json", "*.txt", "*.model", "*.jinja", "*.py", "LICENSE*", "README*")


def convert_bin(folder: Path, out: Path) -> Path:
    """Write the model in `folder` to the new folder `out` with its weights as safetensors, and return `out`.

    Configuration, tokenizer, licence and model card are copied. The files are written to a temporary folder, which is
    then renamed: `out` is complete or absent. Raises ModelError if there is no .bin, if it contains anything except
    tensors, or if `out` exists; StorageError if `out` cannot be written.
    """
    from huggingface_hub import save_torch_state_dict

    tensors = _read(folder)
    # Safetensors refuses shared memory, and the writer keeps only one name of tied weights. Copy, to keep both.
    seen: set[int] = set()
    for name, tensor in tensors.items():
        pointer = tensor.untyped_storage().data_ptr()
        tensors[name] = tensor.clone() if pointer in seen else tensor.contiguous()
        seen.add(pointer)
    with new_folder(out) as partial:
        for file in sorted({file for pattern in COPIED for file in folder.glob(pattern)}):
            if file.is_file() and not file.name.endswith(".index.json"):
                shutil.copyfile(_inside(file, folder), partial / file.name)
        save_torch_state_dict(tensors, partial)
    return out


def _read(folder: Path) -> dict[str, Any]:
    import torch

    single, index = _inside(folder / SINGLE, folder), _inside(folder / INDEX, folder)
    if single.is_file():
        files = [single]
    elif index.is_file():
        files = indexed_files(index)
    else:
        raise ModelError(
            f"{folder} is neither a GGUF file nor a folder with {SINGLE} or {INDEX}; expected the folder of a model "
            "saved as .bin."
        )
    tensors: dict[str, Any] = {}
    for file in files:
        try:
            part = torch.load(_inside(file, folder), map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file can raise anything
            raise ModelError(f"{file} could not be read as weights only, and is refused: {first_line(error)}") from None
        named = isinstance(part, dict) and all(isinstance(name, str) for name in part)
        if not named or not all(isinstance(tensor, torch.Tensor) for tensor in part.values()):
            raise ModelError(f"{file} holds something else than named tensors; expected a model's state.")
        tensors |= part
    if not tensors:
        raise ModelError(f"{folder} has weights without any tensor; expected a model's state. Copy the model again.")
    return tensors


def _inside(file: Path, folder: Path) -> Path:
    """Return a file; raises ModelError for a link out of the folder, other than to the blobs of the hub's cache."""
    place, own = file.resolve(), folder.resolve()
    cached = own.parent.name == "snapshots" and place.is_relative_to(own.parents[1] / "blobs")
    if not place.is_relative_to(own) and not cached:
        raise ModelError(f"{file} is a link to {place}, outside of the folder: it is not read. Copy the file instead.")
    return file
