"""Vectors of texts; those of human texts are a stage of their own, kept on disk by content.

All objectives are compared with the same human texts: these are read by the encoder once, also where the objectives
are evaluated by other processes, or days apart.

Legend: N texts, D width of the encoder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from emobench.core.settings import PRETRAINED
from emobench.core.versions import minor_versions
from emobench.kinds.interface import Subject
from emobench.kinds.shared_rules import MauveRule
from emobench.metrics.features import embed
from emobench.models.encoder import SentenceEncoder

FEATURES = "features.npy"

Encode = Callable[[Sequence[str]], np.ndarray]


def features_of(subject: Subject, rule: MauveRule, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
    """Return features_ND of texts; with `keep` they are computed once for all runs that compare with these texts."""
    featurizer = subject.other(rule.model)

    def encode(texts: Sequence[str]) -> np.ndarray:
        with subject.work("features", "texts") as progress:
            return embed(
                texts,
                featurizer.model,
                featurizer.tokenizer,
                pooling=rule.pooling,
                max_length=rule.max_length,
                progress=progress,
            )

    if not keep:
        return encode(texts)
    facts = {
        "featurizer": dict(featurizer.identity),
        # As `Model.other` loads it: the model before training in the dtype of the run, others in float32.
        "dtype": str(subject.model.dtype).removeprefix("torch.") if rule.featurizer == PRETRAINED else "float32",
        "pooling": rule.pooling,
        "max_length": rule.max_length,
    }
    return _kept(subject, facts, texts, encode)


def sentences_of(subject: Subject, encoder: SentenceEncoder, texts: Sequence[str], *, keep: bool = False) -> np.ndarray:
    """Return the sentence embeddings of texts, (N, D); with `keep` once for all runs, as above."""

    def encode(texts: Sequence[str]) -> np.ndarray:
        with subject.work("sentence embeddings", "texts") as progress:
            return encoder.encode(texts, progress)

    facts = {"encoder": dict(encoder.identity)}
    return _kept(subject, facts, texts, encode, "sentence-transformers") if keep else encode(texts)


def _kept(
    subject: Subject, facts: Mapping[str, Any], texts: Sequence[str], encode: Encode, *packages: str
) -> np.ndarray:
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    computed = {
        "device": subject.model.device.type,
        "packages": {
            # As in the keys of the scores.
            **minor_versions("emobench"),
            **{name: version(name) for name in ("torch", "transformers", *packages)},
        },
    }

    def work(folder: Path) -> None:
        np.save(folder / FEATURES, encode(texts), allow_pickle=False)

    folder = subject.keep("features", {**facts, **computed, "texts": digest}, work)
    return np.load(folder / FEATURES, allow_pickle=False)
