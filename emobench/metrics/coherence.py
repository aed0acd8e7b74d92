"""Coherence: cosine of the sentence embeddings of a prefix and of its continuation (Su et al., NeurIPS 2022).

Legend: R sampling runs, N prompts, D width of the encoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from emobench.core.errors import MetricError
from emobench.metrics.by_prompt import mean_by_prompt
from emobench.metrics.repetition import SIMCTG
from emobench.tasks.scores import Measure, Score

COHERENCE = Measure(
    True,
    "cosine",
    secondary=True,
    title="Coherence",
    definition="The cosine of the sentence embeddings of a prefix and of its continuation.",
    source=SIMCTG,
)


def coherence(
    prefixes_ND: np.ndarray,
    runs: Sequence[Sequence[str]],
    ids: Sequence[str],
    encode: Callable[[Sequence[str]], np.ndarray],
) -> Score:
    """Return the mean cosine, from -1 to 1; each run holds the continuation of each prefix.

    A continuation that is blank (it ended at once) has no embedding and is left out. Raises MetricError if all
    of a run are, or if an embedding is zero or not finite.
    """
    written_RN = np.array([list(map(bool, map(str.strip, run))) for run in runs])
    texts = list(filter(str.strip, chain.from_iterable(runs)))
    if not texts:
        raise MetricError("All continuations are blank: there is nothing to compare with the prefixes.")
    vectors_RND = np.zeros((*written_RN.shape, prefixes_ND.shape[-1]))
    vectors_RND[written_RN] = encode(texts)
    prefixes_ND = prefixes_ND.astype(np.float64)
    norms_RN = np.linalg.norm(vectors_RND, axis=-1) * np.linalg.norm(prefixes_ND, axis=-1)
    norms_RN[~written_RN] = 1.0
    if not (np.isfinite(norms_RN) & (norms_RN > 0)).all():
        raise MetricError("The sentence encoder gives embeddings of zero, or that are not finite; use another.")
    cosines_RN = (vectors_RND * prefixes_ND).sum(-1) / norms_RN
    return mean_by_prompt(cosines_RN, ids, COHERENCE, weights_RN=written_RN)
