"""Perplexity, the exponential of the mean negative log-likelihood in nats per token, and entropy, by tokens.

The official code takes the exponential of a mean of batch means, which depends on the batches; this does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from emobench.core.errors import MetricError
from emobench.metrics.token_pass import TokenSums, mean_of
from emobench.tasks.scores import Measure, Score

PERPLEXITY = Measure(False, "perplexity")
ENTROPY = Measure(None, "nats")


def perplexity(sums: TokenSums, row_ids: Sequence[str]) -> Score:
    """Return the PPL over all target tokens; examples hold each row's nats per token and its tokens.

    Raises MetricError if nothing can be scored or the perplexity is not finite.
    """
    nats, examples = mean_of(sums, "log_prob", row_ids, sign=-1)
    if nats > 700:
        raise MetricError(
            f"The mean negative log-likelihood is {nats:.1f} nats per token: its exponential is no number."
        )
    return PERPLEXITY.score(math.exp(nats), len(examples), examples=examples, aggregate="exp_mean")


def entropy(sums: TokenSums, row_ids: Sequence[str]) -> Score:
    """Return the mean entropy of the next-token distribution in nats, weighted by tokens; neither way is better.

    `sums` must come from a pass with `needs={"entropy"}`.
    """
    nats, examples = mean_of(sums, "entropy", row_ids)
    return ENTROPY.score(nats, len(examples), examples=examples)
