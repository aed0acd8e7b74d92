"""Check that a model's weights are complete, from the names and shapes in the file headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from emobench.core.errors import ModelError, first_line
from emobench.core.reading import open_file
from emobench.models.catalog import ModelSource
from emobench.models.folder import INDEX, SINGLE, how_to_convert, weight_files
from emobench.models.hub import published_weights

Shapes = Mapping[str, tuple[int, ...]]
"""The shape of each stored tensor, by its name in the files."""


def stored_shapes(source: ModelSource, folder: Path, *, offline: bool) -> Shapes | None:
    """Return the shapes of a model's weights: from its folder, else from its repository.

    None, offline, for a hub model without downloaded weights. Raises ModelError if safetensors are missing.
    """
    if source.kind == "local" or has_weights(folder, source):
        return _read_headers(weight_files(folder, source), source.name)
    if offline:
        return None
    assert source.revision is not None
    published = published_weights(source.source, source.revision)
    if published.shapes is None:
        others = ", ".join(published.others) or "none"
        raise ModelError(
            f"{source.source} (commit {source.revision}) publishes no {SINGLE} and no {INDEX} with its files; the "
            f"weights in it are: {others}. {how_to_convert(source)}"
        )
    return published.shapes


def has_weights(folder: Path, source: ModelSource) -> bool:
    """Return whether a folder has all files of a model's weights."""
    try:
        return bool(weight_files(folder, source))
    except ModelError:
        return False


def require_whole(source: ModelSource, skeleton: Any, stored: Shapes, ignored: Iterable[str] = ()) -> None:
    """Raise ModelError if the stored weights lack some that the architecture needs.

    `skeleton` is the model on the meta device. Its parts in `ignored` may be absent.
    """
    missing = [key for key in missing_weights(skeleton, stored) if key.partition(".")[0] not in set(ignored)]
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if missing[3:] else "")
        raise ModelError(
            f"The safetensors of {source.name} lack {shown}, which a {type(skeleton).__name__} needs: they are not "
            f"a whole model. {how_to_convert(source)}"
        )


def missing_weights(skeleton: Any, stored: Iterable[str]) -> list[str]:
    """Return the parameters of a model without a stored tensor, sorted. For tied weights one tensor is enough.

    Names are converted by transformers' rules, with or without the prefix of the base model.
    """
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

    rules = get_model_conversion_mapping(skeleton)
    converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
    if any(len(rule.target_patterns) > 1 for rule in converters):
        return []  # one tensor becomes several, known only when loading
    renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
    known = skeleton.state_dict()
    prefix = skeleton.base_model_prefix
    stored_names = {rename_source_key(name, renamings, converters, prefix, known)[0] for name in stored}
    missing = {name for name, _ in skeleton.named_parameters(remove_duplicate=False)} - stored_names
    for tied, kept in (skeleton.all_tied_weights_keys or {}).items():
        missing -= {tied} if {tied, kept} <= missing else {tied, kept}
    optional = skeleton._keys_to_ignore_on_load_missing or ()
    return sorted(name for name in missing if not any(re.search(pattern, name) for pattern in optional))


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
