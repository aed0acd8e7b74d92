"""Sentence encoders: sentence-transformers models by name, folder or hub id.

Legend: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from emobench.core.errors import Missing, ModelError, first_line
from emobench.core.reading import expand_home, is_folder, parse_json, read_text
from emobench.models.catalog import HUB_ID, ModelFacts
from emobench.models.folder import ADAPTER, INDEX, file_digest, indexed_files, weights_in
from emobench.models.hub import MAIN, Repo
from emobench.models.packaged import how_to_install, packaged_folder
from emobench.models.quiet import quiet_libraries

ALIASES = {"all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2"}
COMMITS = {"sentence-transformers/all-mpnet-base-v2": "e8c3b32edf5434bc2275fc9bab85f82640a19130"}
"""The commit for a repository. Other repositories use the current commit, which is recorded."""
FACTS = {"all-mpnet-base-v2": ModelFacts(parameters=109_486_464, width=768, layers=12)}
"""Sizes for estimates; the weights on the hub are float32."""
MODULES = "modules.json"
OWN = "sentence_transformers."
PATTERNS = ("*.json", "*.txt", "*.safetensors", "*.model")
"""The files of an encoder, in its folder and in the folders of its modules. Weights must be safetensors."""
BATCH = 32
"""Number of texts per batch. On a CPU 128 are slower, because of more padding."""
SORTED = 64 * BATCH
"""Number of texts that are sorted by length together."""


@dataclass(frozen=True, eq=False)
class SentenceEncoder:
    """A sentence encoder. Its weights are loaded as float32 at first use."""

    name: str
    folder: Path
    identity: Mapping[str, Any]
    """The commit, or the digests of its files, for stage keys."""
    device: str

    @cached_property
    def _model(self) -> Any:
        import torch
        from sentence_transformers import SentenceTransformer

        from emobench.models.inference import optimize_for_inference

        weights = {"dtype": torch.float32, "use_safetensors": True}
        try:
            with quiet_libraries():
                model = SentenceTransformer(
                    str(self.folder), device=self.device, local_files_only=True, model_kwargs=weights
                ).eval()
        except Exception as error:  # the modules of the folder can raise anything
            raise ModelError(
                f"The sentence encoder {self.name} does not load from {self.folder} ({first_line(error)}); save it "
                "again with sentence-transformers."
            ) from error
        optimize_for_inference(model)
        return model

    def encode(self, texts: Sequence[str], progress: Callable[[int, int], None] | None = None) -> np.ndarray:
        """Return the vectors of texts, (N, D), float32, without further normalisation.

        Batches contain texts of similar length. The other texts of a batch change a vector by about 1e-7.
        """
        vectors = []
        for start in range(0, len(texts), SORTED):
            part = list(texts[start : start + SORTED])
            vectors.append(self._model.encode(part, batch_size=BATCH, show_progress_bar=False))
            if progress is not None:
                progress(start + len(part), len(texts))
        return np.concatenate(vectors).astype(np.float32, copy=False)


def find_encoder(name: str, *, offline: bool, device: str = "cpu") -> SentenceEncoder:
    """Return the encoder for an alias, a local folder or a hub id.

    Raises ModelError if it cannot be used; offline, raises Missing if it was not downloaded before.
    """
    folder = packaged_folder(name) or expand_home(name)
    if is_folder(folder):
        files = _checked_files(folder, name)
        digests = {file.relative_to(folder).as_posix(): file_digest(file) for file in files}
        return SentenceEncoder(name, folder, {"kind": "local", "files": digests}, device)
    repo = Repo(ALIASES.get(name, name), offline=offline)
    if HUB_ID.fullmatch(repo.name) is None:
        raise ModelError(
            f"The sentence encoder {name} is not a folder, a hub id such as org/name, or one of {', '.join(ALIASES)}; "
            "give one of them."
        )
    try:
        commit = repo.resolve(COMMITS.get(repo.name, MAIN))
        folder = repo.fetch(commit, PATTERNS)
        if offline and not (folder / MODULES).is_file():
            raise repo.missing(commit, MODULES)
    except Missing as missing:
        facts = FACTS.get(name)
        size = facts and 4 * facts.parameters
        advice = f"{how_to_install(name)} Or give a local one, a folder that sentence-transformers saved.".strip()
        raise missing.named(f"sentence encoder {name}", size=size, advice=advice) from None
    except ModelError as error:
        raise ModelError(f"The sentence encoder {name}: {error} {how_to_install(name)}".strip()) from None
    _checked_files(folder, name)
    return SentenceEncoder(name, folder, {"kind": "hub", "repo": repo.name, "commit": commit}, device)


def encoder_size(name: str) -> ModelFacts | None:
    """Return the size of an encoder for estimates: from the catalog, or from a folder's weights; None otherwise."""
    folder = expand_home(name)
    if name in FACTS or not is_folder(folder):
        return FACTS.get(name)
    return ModelFacts(parameters=weights_in(folder))


def _checked_files(folder: Path, name: str) -> list[Path]:
    """Return the files of an encoder. Raises ModelError unless all of them are safe to read."""
    files = {file for pattern in PATTERNS for file in folder.glob(pattern)}
    problem = ""
    try:
        # Without this file, sentence-transformers would average the last layer of any model in the folder.
        for module in parse_json(read_text(folder / MODULES)):
            own, kind = folder / module["path"], str(module["type"])
            if not own.resolve().is_relative_to(folder.resolve()):
                raise ValueError("a module outside of the folder")
            if (own / INDEX).is_file():
                indexed_files(own / INDEX)
            of_module = {file for pattern in PATTERNS for file in own.rglob(pattern)}
            files |= of_module
            needs_weights = kind.endswith("Transformer") or any(own.glob("*.bin"))
            if (own / ADAPTER).is_file():
                problem = f"holds an adapter ({own / ADAPTER}); merge it into the weights with peft's merge_and_unload"
            elif not kind.startswith(OWN):
                problem = f"needs code of its own ({kind}), which is not run"
            elif needs_weights and not any(file.suffix == ".safetensors" for file in of_module):
                problem = f"has no safetensors weights in {own}; .bin files can run code when they are read"
    except (OSError, ValueError, KeyError, TypeError) as error:
        problem = f"has no list of modules, {folder / MODULES} ({error}), as sentence-transformers saves it"
    if problem:
        advice = "Save it again with sentence-transformers, or use another."
        raise ModelError(f"The sentence encoder {name} {problem}. {advice}")
    return sorted(files)
