"""Perplexity: the exponential of the mean negative log-likelihood in nats per token, weighted by tokens.

The official code takes the exponential of a mean of batch means, which depends on the batches; this does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from emobench.errors import MetricError
from emobench.metrics.token_pass import TokenSums, mean_of
from emobench.tasks.scores import Score


def perplexity(sums: TokenSums, row_ids: Sequence[str]) -> Score:
    """Return the PPL over all target tokens; examples hold each row's nats per token and its tokens.

    Raises MetricError if nothing can be scored or the perplexity is not finite.
    """
    nats, examples = mean_of(sums, "log_prob", row_ids, sign=-1)
    if nats > 700:
        raise MetricError(
            f"The mean negative log-likelihood is {nats:.1f} nats per token: its exponential is no number."
        )
    return Score(
        value=math.exp(nats),
        n=len(examples),
        higher_is_better=False,
        unit="perplexity",
        examples=examples,
        aggregate="exp_mean",
    )
