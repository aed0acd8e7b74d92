"""Features of texts for MAUVE; those of human texts are a stage of their own, kept on disk by their content.

Legend: N texts, D width of the featurizer.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from emobench.evaluation.kinds import Beside, Subject
from emobench.evaluation.metrics.features import embed
from emobench.tasks.generation import MauveRule

FEATURES = "features.npy"


def features_of(subject: Subject, rule: MauveRule, texts: list[str], *, keep: bool = False) -> np.ndarray:
    """Return features_ND of texts; with `keep` they are computed once for all runs that compare with these texts."""
    if not keep:
        return _embedded(subject, rule, texts)
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    facts = {
        "featurizer": dict(subject.other(Beside(rule.featurizer, "features")).facts),
        "pooling": rule.pooling,
        "max_length": rule.max_length,
        "texts": digest,
    }

    def work(folder: Path) -> None:
        np.save(folder / FEATURES, _embedded(subject, rule, texts), allow_pickle=False)

    return np.load(subject.keep("features", facts, work) / FEATURES, allow_pickle=False)


def _embedded(subject: Subject, rule: MauveRule, texts: list[str]) -> np.ndarray:
    featurizer = subject.other(Beside(rule.featurizer, "features"))
    with subject.work("features", "texts") as progress:
        return embed(
            texts,
            featurizer.model,
            featurizer.tokenizer,
            pooling=rule.pooling,
            max_length=rule.max_length,
            progress=progress,
        )
