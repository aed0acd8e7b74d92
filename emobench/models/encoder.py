"""Sentence encoders: sentence-transformers by name, folder or hub id; what identifies one, and texts to vectors.

Legend: N texts, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from emobench.errors import ModelError
from emobench.models.folder import file_digest
from emobench.models.hub import fetch, resolve_revision

ALIASES = {"all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2"}
PATTERNS = ("*.json", "*/*.json", "*.txt", "*.safetensors", "tokenizer.model")
"""Files that make an encoder; weights are safetensors only."""


class SentenceEncoder:
    """A sentence encoder that was found; its weights are read at first use."""

    def __init__(self, name: str, folder: Path, facts: Mapping[str, Any], device: str) -> None:
        self.name = name
        self.facts = facts
        """What identifies it, for content keys."""
        self._folder = folder
        self._device = device

    @cached_property
    def _model(self) -> Any:
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(self._folder), device=self._device, local_files_only=True)

    def encode(self, texts: Sequence[str], batch: int = 32) -> np.ndarray:
        """Return the vectors of texts, (N, D), float32, as the encoder gives them."""
        return self._model.encode(list(texts), batch_size=batch, show_progress_bar=False, convert_to_numpy=True)


def find_encoder(name: str, *, offline: bool, device: str = "cpu") -> SentenceEncoder:
    """Return the encoder of an alias, a local folder, or a hub id; raises ModelError where it is not at hand."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        files = sorted({file for pattern in PATTERNS for file in folder.glob(pattern)})
        digests = {file.relative_to(folder).as_posix(): file_digest(file) for file in files}
        _check(folder, name)
        return SentenceEncoder(name, folder, {"kind": "local", "files": digests}, device)
    repo = ALIASES.get(name, name)
    try:
        commit = resolve_revision(repo, "main", offline=offline)
        folder = fetch(repo, commit, PATTERNS, offline=offline)
    except ModelError as error:
        raise ModelError(
            f"The sentence encoder {name} is not at hand. {error} Or give a local one with --set icl.encoder=FOLDER, "
            "or another retriever with --set icl.retriever=bm25."
        ) from None
    _check(folder, name)
    return SentenceEncoder(name, folder, {"kind": "hub", "repo": repo, "commit": commit}, device)


def _check(folder: Path, name: str) -> None:
    for file in ("modules.json", "config.json"):
        if not (folder / file).is_file():
            raise ModelError(
                f"The sentence encoder {name} has no {file} in {folder}; expected a folder that sentence-transformers "
                "saved."
            )
