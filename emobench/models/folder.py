"""The files of a model: their folder, the checks before they are read, the tokenizer, and the identity."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from emobench.core.errors import ModelError, UnknownNameError, first_line
from emobench.core.reading import open_file, parse_json, parse_mapping, read_text
from emobench.core.settings import file_sha256
from emobench.models.catalog import ModelSource, find_model
from emobench.models.device import LoadOptions
from emobench.models.hub import MAIN, Repo, published_weights
from emobench.models.quiet import silent_libraries

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
BIN = "pytorch_model*.bin"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
# The largest mixtures of experts have about this many layers times experts; more takes minutes to build.
MOST_MODULES = 50_000


Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each stored tensor, by its name in the files."""


def model_folder(source: ModelSource, *, offline: bool, weights: bool = True) -> Path:
    """Return the folder of a model's files. Files of a hub model are downloaded; `weights=False` leaves out weights."""
    if source.kind == "local":
        return Path(source.source)
    if source.kind == "made":
        raise ModelError(f"The model '{source.name}' is made by the harness at its first run; it has no folder yet.")
    patterns = [*CONFIG_FILES, *TOKENIZER_FILES, INDEX, "*.py"]
    if weights:
        patterns.append("model*.safetensors")
    return Repo(source.source, offline=offline).fetch(source.revision or MAIN, patterns)


def is_adapter(source: ModelSource) -> bool:
    """Return whether a model is a folder with an adapter alone."""
    if source.kind != "local":
        return False
    folder = Path(source.source)
    whole = (folder / SINGLE).is_file() or (folder / INDEX).is_file()
    return (folder / ADAPTER).is_file() and not whole


def checked_folder(source: ModelSource, *, offline: bool, own_tokenizer: bool = True) -> Path:
    """Return the folder of a model's files, without the weights of a hub model.

    Raises ModelError unless it has a configuration of a size that can be built, a tokenizer and, beside its weights, no
    adapter, which transformers would add to them without a message. Offline, files of a hub model that were not
    downloaded are Missing.
    """
    folder, name = model_folder(source, offline=offline, weights=False), source.name
    file = folder / "config.json"
    if (folder / ADAPTER).is_file():
        raise ModelError(
            f"The model {name}, {folder}, holds an adapter ({ADAPTER}) and another model; expected one of them. Move "
            "the files adapter_* into a folder of their own, and give the one that you mean."
        )
    lacks = ""
    if not file.is_file():
        lacks = "config.json"
    elif own_tokenizer and not has_vocabulary(folder):
        lacks = f"tokenizer (one of {', '.join(VOCABULARY_FILES)})"
    if lacks and offline and source.kind == "hub":
        raise source.missing("its configuration and tokenizer")
    if lacks:
        advice = " Give the tokenizer of its base: --tokenizer BASE." if lacks.startswith("tokenizer") else ""
        raise ModelError(
            f"The model {name} has no {lacks} in {folder}: expected a folder that transformers saved.{advice}"
        )
    config = read_config(file)
    if config.get("transformers_weights") is not None:
        raise ModelError(
            f"{file} of {name} takes its weights from `transformers_weights`: {config['transformers_weights']!r}; "
            f"expected {SINGLE}, or {INDEX} with its files. Load the model with transformers and save it again."
        )
    _require_buildable(config, file)
    return folder


def read_config(file: Path) -> dict[str, Any]:
    """Return the configuration in a file of a model. Raises ModelError if it cannot be read."""
    try:
        return parse_mapping(read_text(file))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read as a configuration: {error}.") from None


def weight_files(folder: Path, source: ModelSource) -> list[Path]:
    """Return the safetensors files of a model, in order. Raises ModelError if there are none or a shard is missing."""
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return indexed_files(folder / INDEX)
    raise ModelError(
        f"The model {source.name} has no weights in {folder}: expected {SINGLE}, or {INDEX} with its files. "
        f"{how_to_convert(source)} To train from its configuration alone, give --from-scratch."
    )


def how_to_convert(source: ModelSource) -> str:
    """Return what to type for a model with missing or incomplete safetensors."""
    if source.kind == "local":
        if any(Path(source.source).glob(BIN)):
            return f"Convert its .bin: emobench models convert {source.source} OUT, and give OUT as the model."
        return "Copy the whole model, or save it again with transformers."
    return (
        f"If {source.source} has .bin files, a format that can run code when it is read, convert them: hf download "
        f"{source.source} --revision {source.revision or MAIN} --local-dir FOLDER, then emobench models convert "
        "FOLDER OUT, and give OUT as the model."
    )


def require_weights_here(source: ModelSource) -> None:
    """Raise Missing for a hub model whose weights were not downloaded, for use offline."""
    if source.kind == "hub" and not has_weights(model_folder(source, offline=True, weights=False), source):
        raise source.missing("its weights")


def has_weights(folder: Path, source: ModelSource) -> bool:
    """Return whether a folder has all files of a model's weights."""
    try:
        return bool(weight_files(folder, source))
    except ModelError:
        return False


def indexed_files(index: Path) -> list[Path]:
    """Return the files that an index of weights names, in order. Raises ModelError, also for a missing file."""
    try:
        names = sorted(set(parse_json(read_text(index))["weight_map"].values()))
        outside = next((name for name in names if Path(name).name != name), None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is not an index of weights ({error}); save or copy the whole model again.") from None
    if outside is not None:
        raise ModelError(
            f"{index} names {outside!r}, which is not a file in its folder: only a model's own folder is read."
        )
    files = [index.with_name(name) for name in names]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelError(f"{index.parent} lacks {', '.join(missing)}, which {index.name} names: copy the whole model.")
    return files


def _require_buildable(config: Mapping[str, Any], file: Path) -> None:
    """Raise ModelError for so many layers or experts that building the model would take minutes."""
    layers = experts = 1
    for key, value in config.items():
        if isinstance(value, dict):
            _require_buildable(value, file)
        if "layer" in key and isinstance(value, int):
            layers = max(layers, value)
        if "expert" in key and isinstance(value, int):
            experts = max(experts, value)
        if layers * experts > MOST_MODULES:
            raise ModelError(f"{file}: `{key}` is {value:,}; expected {MOST_MODULES:,} modules at most.")


def identity(source: ModelSource) -> dict[str, Any]:
    """Return the identity of a model for stage keys: its hub repository and commit, or the sha256 of its files.

    An adapter is identified together with its base. The files of a local folder are its configuration, tokenizer,
    safetensors and code, by their relative paths. Other files are ignored.
    """
    if source.kind == "hub":
        return {"kind": "hub", "repo": source.source, "commit": source.revision}
    if source.adapter is not None:
        return dict(source.adapter)
    folder = model_folder(source, offline=True)
    weights: list[Path] = []
    if any((folder / name).is_file() for name in (SINGLE, INDEX)):
        weights = weight_files(folder, source)
    names = (*CONFIG_FILES, *TOKENIZER_FILES, *(file.name for file in weights))
    return {"kind": "local", "files": _digests(folder, names, (*OTHER_FILES, *CODE))}


def _digests(folder: Path, names: Iterable[str], patterns: Iterable[str]) -> dict[str, str]:
    """Return the digest of each file of these names or patterns that a folder has, by its relative path."""
    files = [folder / name for name in names]
    for pattern in patterns:
        files += folder.glob(pattern)
    paths = {file.relative_to(folder).as_posix(): file for file in files if file.is_file()}
    return {path: file_digest(paths[path]) for path in sorted(paths)}


def file_digest(file: Path) -> str:
    """Return "sha256:<hex>" of a file. Cached until its size or modification time changes."""
    stat = file.stat()
    return _digest(str(file.resolve()), stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=4096)
def _digest(path: str, _size: int, _mtime_ns: int) -> str:
    return f"sha256:{file_sha256(Path(path))}"


def stored_shapes(source: ModelSource, folder: Path, *, offline: bool) -> Shapes | None:
    """Return the shapes of a model's weights: from its folder, else from its repository.

    None, offline, for a hub model without downloaded weights. Raises ModelError if safetensors are missing.
    """
    if source.kind == "local" or has_weights(folder, source):
        return _read_headers(weight_files(folder, source), source.name)
    if offline:
        return None
    assert source.revision is not None
    shapes, others = published_weights(source.source, source.revision)
    if shapes is None:
        raise ModelError(
            f"{source.source} (commit {source.revision}) publishes no {SINGLE} and no {INDEX} with its files; the "
            f"weights in it are: {', '.join(others) or 'none'}. {how_to_convert(source)}"
        )
    return shapes


def weights_in(folder: Path) -> int:
    """Return the number of weights in a folder's safetensors, by their headers."""
    shapes = _read_headers(folder.glob("*.safetensors"), folder.name)
    return sum(math.prod(shape) for shape in shapes.values())


def _read_headers(files: Iterable[Path], name: str) -> Shapes:
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files:
        try:
            open_file(file).close()  # safetensors reports a file without read permission as missing
            with safe_open(file, framework="pt") as tensors:
                shapes |= {key: tuple(tensors.get_slice(key).get_shape()) for key in tensors.keys()}  # noqa: SIM118
        except OSError as error:
            raise ModelError(f"{file} of {name} cannot be read: {error.strerror or error}.") from None
        except SafetensorError as error:
            raise ModelError(f"{file} of {name} is not a whole safetensors file: {first_line(error)}") from None
    return shapes


def has_vocabulary(folder: Path) -> bool:
    """Return whether a folder has a tokenizer."""
    return any((folder / name).is_file() for name in VOCABULARY_FILES)


def load_tokenizer(source: ModelSource, options: LoadOptions) -> Any:
    """Return only the tokenizer of a model. Raises ModelError if it cannot be read."""
    folder = checked_folder(source, offline=options.offline, own_tokenizer=options.tokenizer is None)
    with silent_libraries():
        return read_tokenizer(tokenizer_folder(folder, options), source.name, options.trust_remote_code)


def tokenizer_folder(folder: Path, options: LoadOptions) -> Path:
    """Return the folder of the tokenizer of a model that is in `folder`: the same, or the folder of --tokenizer.

    Raises ModelError for a --tokenizer that is none.
    """
    name = options.tokenizer
    if name is None:
        return folder
    try:
        folder = model_folder(find_model(name, offline=options.offline), offline=options.offline, weights=False)
    except (ModelError, UnknownNameError) as error:
        raise ModelError(f"--tokenizer {name}: {str(error).removeprefix(f'--model {name}: ')}") from None
    if not has_vocabulary(folder):
        raise ModelError(
            f"--tokenizer {name}: {folder} has no tokenizer; expected one of {', '.join(VOCABULARY_FILES)}."
        )
    return folder


def tokenizer_files(folder: Path) -> dict[str, str]:
    """Return the digest of each file of the tokenizer in a folder."""
    return _digests(folder, TOKENIZER_FILES, OTHER_FILES)


def tokenizer_digest(tokenizer: Any) -> str | None:
    """Return the sha256 of all that decides the tokens of a text; None for a tokenizer in Python, which has code."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    for name in ("truncation", "padding"):  # of the last call
        definition.pop(name, None)
    facts = [type(tokenizer).__name__, tokenizer.bos_token_id, tokenizer.eos_token_id, definition]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def read_tokenizer(folder: Path, name: str, trust_remote_code: bool) -> Any:
    """Return the tokenizer of a folder; `name` is the model's. Raises ModelError if it cannot be read."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trust_remote_code)
    except Exception as error:  # `tokenizers` raises bare Exceptions for files that it cannot read
        raise ModelError(f"The tokenizer of {name} could not be read: {first_line(error)}") from None
