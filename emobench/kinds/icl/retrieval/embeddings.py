"""Sentence vectors of texts, made once for an encoder and the texts, and kept between runs.

Legend: N different texts, D width.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from emobench.kinds.interface import Subject
from emobench.models.encoder import SentenceEncoder

VECTORS = "vectors.npy"


def embeddings(subject: Subject, encoder: SentenceEncoder, texts: Sequence[str], name: str) -> dict[str, np.ndarray]:
    """Return the vector of each text, (D,), float32; `name` says what is embedded.

    Each different text is encoded once, so that equal texts have equal vectors and tie exactly, as they do where texts
    are encoded one by one.
    """
    different = list(dict.fromkeys(texts))

    def work(folder: Path) -> None:
        with subject.work(f"embed {name}", "texts") as progress:
            vectors_ND = encoder.encode(different, progress)
        np.save(folder / VECTORS, vectors_ND, allow_pickle=False)

    facts = {**encoder_facts(encoder), "texts": texts_digest(different)}
    vectors_ND = np.load(subject.keep("embeddings", facts, work) / VECTORS, allow_pickle=False)
    return dict(zip(different, vectors_ND, strict=True))


def encoder_facts(encoder: SentenceEncoder) -> dict[str, Any]:
    """Return what decides the vectors of a text."""
    packages = ("sentence-transformers", "transformers", "torch")
    return {
        "encoder": dict(encoder.facts),
        "device": encoder.device.partition(":")[0],
        "packages": {name: version(name) for name in packages},
    }


def texts_digest(texts: Iterable[str]) -> str:
    """Return "sha256:<hex>" of texts in their order."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return f"sha256:{digest.hexdigest()}"
