"""Adapters of peft: a folder with adapter_config.json is a model together with its base, merged in float32.

The merged model is written to the cache at first use. Base and adapter identify it, both by content. Weights are read
from safetensors alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emobench.core.errors import ModelError, UnknownNameError, first_line
from emobench.core.extras import require
from emobench.core.files import new_folder
from emobench.core.reading import expand_home, is_folder
from emobench.core.seals import find_damage, write_seal
from emobench.core.settings import content_hash
from emobench.core.versions import minor_versions
from emobench.models.catalog import ModelSource
from emobench.models.checkpoint import other_token
from emobench.models.folder import ADAPTER, TOKENIZER_FILES, file_digest, has_vocabulary, read_config, read_tokenizer
from emobench.models.packaged import cached_folder
from emobench.models.quiet import silent_libraries

if TYPE_CHECKING:
    from emobench.models.model import Model

WEIGHTS = "adapter_model.safetensors"
MERGEABLE = ("ADALORA", "BOFT", "IA3", "LOHA", "LOKR", "LORA", "OFT")
"""Types of adapters that change weights, and name no other file."""


def base_of(source: ModelSource) -> str:
    """Return the base that an adapter names. Raises ModelError for an adapter that cannot be read or names none."""
    config = _config(source)
    base, revision = config.get("base_model_name_or_path"), config.get("revision")
    if not isinstance(base, str) or not base:
        raise ModelError(f"The adapter {source.name} does not name its base; give it: --from BASE.")
    if isinstance(revision, str) and revision and not is_folder(expand_home(base)):
        return f"{base}@{revision}"
    return base


def merged_source(source: ModelSource, base: Model) -> ModelSource:
    """Return the model of an adapter and its base, which is written to the cache at first use.

    Raises ModelError if they do not belong together, and Missing if files of the base are missing.
    """
    require("peft")
    config, folder = _config(source), Path(source.source)
    if not (folder / WEIGHTS).is_file():
        raise ModelError(
            f"The adapter {source.name} has no {WEIGHTS} in {folder}. If it has a .bin, which can run code when it is "
            "read, save it again with peft's save_pretrained, which writes safetensors."
        )
    try:
        base.require_files()
    except (ModelError, UnknownNameError) as error:
        raise ModelError(
            f"The adapter {source.name} needs its base, {base.given}: {error} Or give the base: --from BASE."
        ) from None
    if base.source.adapter is not None:
        raise ModelError(f"{base.given}, the base of {source.name}, is an adapter itself; merge it first.")
    files = [folder / name for name in (ADAPTER, WEIGHTS, *TOKENIZER_FILES)]
    digests = {file.name: file_digest(file) for file in files if file.is_file()}
    identity = {"kind": "adapter", "base": dict(base.identity), "adapter": digests, "packages": minor_versions("peft")}
    merged = cached_folder(source.name, content_hash(identity), lambda out: _merge(source, config, base, out))
    damage = find_damage(merged, full=True)
    if damage is not None:
        raise ModelError(f"{damage}. It is a merged model in the cache: remove {merged}, and run again.")
    return replace(source, source=str(merged), adapter=identity)


def _config(source: ModelSource) -> dict[str, Any]:
    file = Path(source.source) / ADAPTER
    config = read_config(file)
    if config.get("peft_type") not in MERGEABLE:
        raise ModelError(
            f"{file}: `peft_type` is {config.get('peft_type')!r:.40}; expected an adapter that can be merged: "
            f"{', '.join(MERGEABLE)}."
        )
    return config


def _merge(source: ModelSource, config: dict[str, Any], base: Model, out: Path) -> None:
    """Write the merged model, in float32, and a tokenizer: the adapter's, or else the base's."""
    from peft import PeftConfig, get_peft_model

    settings = {name: value for name, value in config.items() if name != "runtime_config"}
    loaded, folder = base.load(dtype="float32"), Path(source.source)
    with silent_libraries():
        try:
            adapted: Any = get_peft_model(loaded.model, PeftConfig.from_peft_type(**settings))
            read = adapted.load_adapter(str(folder), "default", torch_device="cpu")
            merged = adapted.merge_and_unload(safe_merge=True)
        except Exception as error:  # a configuration or weights of another model can raise anything
            raise _misfit(source, base, first_line(error)) from None
        strange = [*read.missing_keys, *read.unexpected_keys]
        if strange:
            raise _misfit(source, base, f"{strange[0]} is in one of them only")
        tokenizer = loaded.tokenizer
        if has_vocabulary(folder):
            tokenizer = read_tokenizer(folder, source.name, trust_remote_code=False)
            if token := other_token(tokenizer, loaded.tokenizer):
                raise _misfit(source, base, f"their tokenizers have different ids for {token!r:.40}")
        with new_folder(out) as written:
            merged.save_pretrained(written)
            tokenizer.save_pretrained(written)
            write_seal(written)


def _misfit(source: ModelSource, base: Model, why: str) -> ModelError:
    return ModelError(
        f"The adapter {source.name} does not fit the base {base.given}: {why.rstrip('.')}. Give the base that it was "
        "trained on: --from BASE."
    )
