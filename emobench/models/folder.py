"""The files of a model: their folder, which of them identify the model, whether any is missing, their digests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from emobench.core.errors import ModelError
from emobench.core.reading import parse_json, read_text
from emobench.core.settings import file_sha256
from emobench.models.catalog import ModelSource
from emobench.models.hub import MAIN, fetch

CONFIG_FILES = ("config.json", "generation_config.json")
# Each of these contains a vocabulary. The other tokenizer files only add to it.
VOCABULARY_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "vocab.txt")
TOKENIZER_FILES = (
    *VOCABULARY_FILES,
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
OTHER_FILES = ("config.*.json", "tokenizer.*.json", "tekken.json", "*.model", "*.spm", "*.tiktoken", "*.codes", "*.bpe")
"""Configurations and tokenizers that some versions or classes of transformers read."""
CODE = ("*.py", "*/*.py")
ADAPTER = "adapter_config.json"
MERGE = (
    "from peft import PeftModel; from transformers import AutoModelForCausalLM as M, AutoTokenizer as T; "
    "PeftModel.from_pretrained(M.from_pretrained('BASE'), 'ADAPTER').merge_and_unload().save_pretrained('OUT'); "
    "T.from_pretrained('BASE').save_pretrained('OUT')"
)
"""Python code that merges an adapter into its base model."""
BIN = "pytorch_model*.bin"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# The largest mixtures of experts have about this many layers times experts; more takes minutes to build.
MOST_MODULES = 50_000


def model_folder(source: ModelSource, *, offline: bool, weights: bool = True) -> Path:
    """Return the folder of a model's files. Files of a hub model are downloaded; `weights=False` leaves out weights."""
    if source.kind == "local":
        return Path(source.source)
    if source.kind == "made":
        raise ModelError(f"The model '{source.name}' is made by the harness at its first run; it has no folder yet.")
    patterns = [*CONFIG_FILES, *TOKENIZER_FILES, INDEX, "*.py"]
    if weights:
        patterns.append("model*.safetensors")
    return fetch(source.source, source.revision or MAIN, patterns, offline=offline)


def require_config_and_tokenizer(folder: Path, name: str) -> None:
    """Raise ModelError unless the folder has a configuration, a tokenizer and no adapter."""
    refuse_adapter(folder, name)
    if not (folder / "config.json").is_file():
        raise ModelError(f"The model {name} has no config.json in {folder}: expected a folder that transformers saved.")
    read_config(folder, name)
    if not any((folder / file).is_file() for file in VOCABULARY_FILES):
        files = ", ".join(VOCABULARY_FILES)
        raise ModelError(f"The model {name} has no tokenizer in {folder}: expected one of {files}, in the same folder.")


def refuse_adapter(folder: Path, name: str) -> None:
    """Raise ModelError for a folder with an adapter: transformers would add it to the weights without a message."""
    if (folder / ADAPTER).is_file():
        raise ModelError(
            f"The model {name}, {folder}, holds an adapter ({ADAPTER}); expected a whole model. With its files "
            "adapter_* in a folder ADAPTER, and the model that it belongs to as BASE, one model of both is made by: "
            f'python -c "{MERGE}"   Give OUT as the model.'
        )


def weight_files(folder: Path, source: ModelSource) -> list[Path]:
    """Return the safetensors files of a model, in order. Raises ModelError if there are none or a shard is missing."""
    name, index = source.name, folder / INDEX
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
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
    hub = source.kind == "hub"
    advice = how_to_convert(source) if hub else "To train from its configuration alone, give --from-scratch."
    raise ModelError(
        f"The model {name} has no weights in {folder}: expected {SINGLE}, or {INDEX} with its files. {advice}"
    )


def how_to_convert(source: ModelSource) -> str:
    """Return what to type for a model with missing or incomplete safetensors."""
    if source.kind == "local":
        if any(Path(source.source).glob(BIN)):
            return f"Convert its .bin: emobench models convert {source.source} OUT, and give OUT as the model."
        return "Copy the whole model, or save it again with transformers."
    return (
        f"If {source.source} has .bin files, a format that can run code when it is read, convert them: hf download "
        f"{source.source} --revision {source.revision or 'main'} --local-dir FOLDER, then emobench models convert "
        "FOLDER OUT, and give OUT as the model."
    )


def require_weights_here(source: ModelSource) -> None:
    """Raise ModelError for a hub model whose weights were not downloaded, for use offline."""
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
        if outside := next((name for name in names if Path(name).name != name), None):
            raise ModelError(
                f"{index} names {outside!r}, which is not a file in its folder: only a model's own folder is read. "
                "Save the model again."
            )
    except OSError as error:
        raise ModelError(f"{index} cannot be read: {error.strerror}.") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ModelError(f"{index} is not an index of {kind} files; save or copy the whole model again.") from None
    return sorted(set(names))


def read_config(folder: Path, name: str) -> dict[str, Any]:
    """Return a model's config.json. Raises ModelError if it is not a configuration, or of too many modules."""
    file = folder / "config.json"
    try:
        config = parse_json(read_text(file))
    except OSError as error:
        raise ModelError(f"{file} of {name} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise ModelError(f"{file} of {name} is not the JSON of a configuration: {error}.") from None
    if not isinstance(config, dict):
        raise ModelError(f"{file} of {name} holds no mapping; expected a configuration that transformers saved.")
    if config.get("transformers_weights") is not None:
        raise ModelError(
            f"{file} of {name} takes its weights from `transformers_weights`: {config['transformers_weights']!r}; "
            f"expected {SINGLE}, or {INDEX} with its files. Load the model with transformers and save it again."
        )
    _require_buildable(config, file)
    return config


def _require_buildable(config: Mapping[str, Any], file: Path) -> None:
    """Raise ModelError for so many layers or experts that building the model would take minutes."""
    modules = 1
    for word in ("layer", "expert"):
        counts = {key: value for key, value in config.items() if word in key and isinstance(value, int)}
        key = max(counts, key=lambda name: counts[name], default="")
        modules *= max(counts.get(key, 1), 1)
        if modules > MOST_MODULES:
            raise ModelError(f"{file}: `{key}` is {counts[key]:,}; expected {MOST_MODULES:,} modules at most.")
    for inner in config.values():
        if isinstance(inner, dict):
            _require_buildable(inner, file)


def identity(source: ModelSource) -> dict[str, Any]:
    """Return the identity of a model for stage keys: its hub repository and commit, or the sha256 of its files.

    The files of a local folder are its configuration, tokenizer, safetensors and code, by their relative paths. Other
    files are ignored.
    """
    if source.kind == "hub":
        return {"kind": "hub", "repo": source.source, "commit": source.revision}
    folder = model_folder(source, offline=True)
    weights = weight_files(folder, source) if any((folder / name).is_file() for name in (SINGLE, INDEX)) else []
    named = (folder / file for file in (*CONFIG_FILES, *TOKENIZER_FILES))
    others = (file for pattern in (*OTHER_FILES, *CODE) for file in folder.glob(pattern))
    files = {file.relative_to(folder).as_posix(): file for file in (*named, *weights, *others) if file.is_file()}
    return {"kind": "local", "files": {path: file_digest(file) for path, file in sorted(files.items())}}


def file_digest(file: Path) -> str:
    """Return "sha256:<hex>" of a file. Cached until its size or modification time changes."""
    stat = file.stat()
    return _digest(str(file.resolve()), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: str, _size: int, _mtime_ns: int) -> str:
    return f"sha256:{file_sha256(Path(path))}"
