"""Entropy: how sure the model is, on the mean, before each target token."""

from __future__ import annotations

from collections.abc import Sequence

from emobench.metrics.token_pass import TokenSums, mean_of
from emobench.tasks.scores import Score


def entropy(sums: TokenSums, row_ids: Sequence[str]) -> Score:
    """Return the mean entropy of the next-token distribution in nats, weighted by tokens; neither way is better.

    `sums` must come from a pass with `needs={"entropy"}`.
    """
    nats, examples = mean_of(sums, "entropy", row_ids)
    return Score(value=nats, n=len(examples), higher_is_better=None, unit="nats", examples=examples)
