"""The files of a model: where they are, which of them count, whether any is missing, and their digests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from emobench.config import content_hash, file_sha256
from emobench.errors import ModelError
from emobench.models.catalog import ModelSource
from emobench.models.hub import fetch
from emobench.reading import parse_json, read_text

CONFIG_FILES = ("config.json", "generation_config.json")
# Any of these holds a vocabulary; the others only add to it.
VOCABULARY_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
MOST_MODULES = 50_000
"""Layers times experts; the largest of 2025 have 61 times 256."""
BIN = "pytorch_model*.bin"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def model_folder(source: ModelSource, *, offline: bool, weights: bool = True) -> Path:
    """Return the folder of a model's files, downloading them (without the weights, if so asked) from the hub."""
    if source.kind == "local":
        return Path(source.source)
    if source.kind == "made":
        raise ModelError(f"The model '{source.name}' is made by the harness at its first run; it has no folder yet.")
    patterns = [*CONFIG_FILES, *TOKENIZER_FILES, INDEX, "*.py"]
    if weights:
        patterns.append("model*.safetensors")
    return fetch(source.source, source.revision or "main", patterns, offline=offline)


def require_config_and_tokenizer(folder: Path, name: str) -> None:
    """Raise ModelError unless the folder holds a configuration and a tokenizer."""
    if not (folder / "config.json").is_file():
        raise ModelError(f"The model {name} has no config.json in {folder}: expected a folder that transformers saved.")
    read_config(folder, name)
    if not any((folder / file).is_file() for file in VOCABULARY_FILES):
        files = ", ".join(VOCABULARY_FILES)
        raise ModelError(f"The model {name} has no tokenizer in {folder}: expected one of {files}, saved beside it.")


def weight_files(folder: Path, source: ModelSource) -> list[Path]:
    """Return the safetensors files of a model, in order, or raise ModelError: none, only a .bin, or a shard missing."""
    name = source.name
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        return [single]
    if index.is_file():
        shards = indexed_files(index, "safetensors")
        missing = [shard for shard in shards if not (folder / shard).is_file()]
        if missing:
            raise ModelError(f"The model {name} lacks {', '.join(missing)}, which {index} names: copy the whole model.")
        return [folder / shard for shard in shards]
    if any(folder.glob(BIN)):
        raise ModelError(
            f"The model {name} has its weights as .bin in {folder}, a format that can run code when it is read. "
            f"Convert it with: emobench models convert {folder} OUT   and give OUT as the model."
        )
    scratch = "To train from its configuration alone, give --from-scratch."
    advice = how_to_convert(source) if source.kind == "hub" else scratch
    raise ModelError(
        f"The model {name} has no weights in {folder}: expected {SINGLE}, or {INDEX} with its files. {advice}"
    )


def how_to_convert(source: ModelSource) -> str:
    """Return what to type for a model whose safetensors are not there, or not whole."""
    if source.kind == "local":
        if any(Path(source.source).glob(BIN)):
            return f"Convert its .bin: emobench models convert {source.source} OUT, and give OUT as the model."
        return "Copy the whole model, or save it again with transformers."
    return (
        f"If {source.source} has .bin files, a format that can run code when it is read, convert them: "
        f"hf download {source.source} --revision {source.revision or 'main'} --local-dir FOLDER, then emobench models "
        "convert FOLDER OUT, and give OUT as the model."
    )


def require_weights_here(source: ModelSource) -> None:
    """Raise ModelError for a hub model whose weights were not downloaded: offline they cannot be."""
    if source.kind != "hub":
        return
    folder = model_folder(source, offline=True, weights=False)
    try:
        weight_files(folder, source)
    except ModelError:
        raise ModelError(
            f"The weights of {source.name} are not in {folder}: run `hf download {source.source} --revision "
            f"{source.revision}` where there is a network, or run once without --offline."
        ) from None


def indexed_files(index: Path, kind: str) -> list[str]:
    """Return the files that an index of weights names. Raises ModelError."""
    try:
        names = parse_json(read_text(index))["weight_map"].values()
        if not all(isinstance(name, str) for name in names):
            raise TypeError
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(f"{index} is no index of {kind} files; save or copy the whole model again.") from None
    return sorted(set(names))


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """Return a model's config.json; ModelError for what is none, or describes more modules than can be built."""
    file = folder / "config.json"
    try:
        config = parse_json(read_text(file))
    except OSError as error:
        raise ModelError(f"{file} of {name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ModelError(f"{file} of {name} is no JSON of a configuration: {error}.") from None
    if not isinstance(config, dict):
        raise ModelError(f"{file} of {name} holds no mapping; expected a configuration that transformers saved.")
    _require_buildable(config, file)
    return config


def _require_buildable(config: Mapping[str, Any], file: Path) -> None:
    """Refuse a number of layers or experts that would take minutes to build, before any weight is read."""
    modules = 1
    for word in ("layer", "expert"):
        counts = {k: v for k, v in config.items() if word in k and isinstance(v, int)}
        key = max(counts, key=lambda name: counts[name], default="")
        modules *= max(counts.get(key, 1), 1)
        if modules > MOST_MODULES:
            raise ModelError(f"{file}: `{key}` is {counts[key]:,}; expected {MOST_MODULES:,} modules at most.")
    for inner in config.values():
        if isinstance(inner, dict):
            _require_buildable(inner, file)


def identity(source: ModelSource) -> dict[str, Any]:
    """Return what a model is, for content keys: a hub repository and commit, or the sha256 of each file that counts.

    The files of a local folder are its configuration, tokenizer, safetensors and code; nothing else in it matters.
    """
    if source.kind == "hub":
        return {"kind": "hub", "repo": source.source, "commit": source.revision}
    folder = model_folder(source, offline=True)
    weights = weight_files(folder, source) if _has_weights(folder) else []
    code = sorted(folder.glob("*.py"))
    files = [*(folder / file for file in (*CONFIG_FILES, *TOKENIZER_FILES)), *weights, *code]
    return {"kind": "local", "files": {file.name: file_digest(file) for file in files if file.is_file()}}


def tokenizer_digest(source: ModelSource, *, offline: bool = False) -> str:
    """Return "sha256:<hex>" over the names and contents of a model's tokenizer files."""
    folder = model_folder(source, offline=offline, weights=False)
    files = (folder / file for file in TOKENIZER_FILES)
    return f"sha256:{content_hash({file.name: file_digest(file) for file in files if file.is_file()})}"


def file_digest(file: Path) -> str:
    """Return "sha256:<hex>" of a file; remembered while its size and time of change stay."""
    stat = file.stat()
    return _digest(str(file.resolve()), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: str, _size: int, _mtime_ns: int) -> str:
    return f"sha256:{file_sha256(Path(path))}"


def _has_weights(folder: Path) -> bool:
    return (folder / SINGLE).is_file() or (folder / INDEX).is_file()
