"""Distances of two next-token distributions as measures: P, a target's or the data's, and Q, the model's.

`emobench.metrics.distribution_distances` computes them; this module imports nothing heavy.

Legend: X texts, S distances.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emobench.metrics.perplexity import EMO, ENTROPY
from emobench.tasks.scores import Measure, Score

MEASURES = {
    "forward_cross_entropy": Measure(
        False,
        "nats",
        title="Forward cross-entropy",
        definition="-sum P log Q in nats per token, of the data's distribution P and the model's Q. It punishes "
        "too little probability on the data's texts (recall).",
        source=EMO,
    ),
    "reverse_cross_entropy": Measure(
        False,
        "nats",
        title="Reverse cross-entropy",
        definition="-sum Q log P in nats per token, of the model's distribution Q and the data's P. It punishes "
        "probability on texts that are unlike the data (precision).",
        source=EMO,
    ),
    "forward_kl": Measure(
        False,
        "nats",
        title="Forward KL",
        definition="sum P log(P / Q) in nats per token: the forward cross-entropy without the data's own entropy.",
    ),
    "reverse_kl": Measure(
        False,
        "nats",
        title="Reverse KL",
        definition="sum Q log(Q / P) in nats per token: the reverse cross-entropy without the model's own entropy.",
    ),
    "total_variation": Measure(
        False,
        "fraction",
        title="Total variation",
        definition="Half the sum of |P - Q| over the vocabulary, the mean over positions: the probability that "
        "the model puts in another place than the data does.",
    ),
    "entropy": ENTROPY,
    "target_entropy": Measure(
        None,
        "nats",
        title="Target entropy",
        definition="The mean entropy of the target's next-token distribution on the test texts, in nats.",
    ),
}
COLUMNS = tuple(MEASURES)
"""The distances with both entropies: Q's is `entropy`."""
DISTANCES = COLUMNS[:-1]
PRIMARY = ("forward_cross_entropy", "reverse_cross_entropy")
"""Those that Figure 2 of the EMO paper plots."""


def distance_score(
    name: str, means_X: np.ndarray, weights_X: np.ndarray, ids: Sequence[str], flags: tuple[str, ...]
) -> Score:
    """Return one distance as a Score, from the mean and the weight of each text."""
    weights_X = weights_X.astype(np.float64)
    examples = {}
    for key, mean, weight in zip(ids, means_X.tolist(), weights_X.tolist(), strict=True):
        examples[key] = (mean, weight)
    value = float(np.average(means_X, weights=weights_X))
    return MEASURES[name].score(value, len(means_X), flags=flags, examples=examples)
