"""Perplexity, the exponential of the mean negative log-likelihood in nats per token, and entropy, by tokens.

The official code takes the exponential of a mean of batch means, which depends on the batches; this does not.

Legend: R rows or groups.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emobench.core.errors import MetricError
from emobench.tasks.scores import Measure, Score

EMO = "Ren, Wu and Zhu, ICLR 2024"
NLL = "The exponential of the model's mean negative log-likelihood, in nats per token"
PERPLEXITY = Measure(False, "perplexity", title="Perplexity", definition=f"{NLL}.")
PPL_TEST = Measure(
    False,
    "perplexity",
    title="Test perplexity",
    definition=f"{NLL}, of the test texts. It is high if the model gives these texts little probability.",
)
PPL_ORACLE = Measure(
    False,
    "perplexity",
    title="Oracle perplexity",
    definition="The perplexity of the model's own texts under the true distribution, or under a stronger model in its "
    "place. It is high if the model writes texts that are unlikely under the oracle.",
    source=EMO,
)
ENTROPY = Measure(
    None,
    "nats",
    title="Entropy",
    definition="The mean entropy of the model's next-token distribution on the test texts, in nats. It says how sure "
    "the model is; neither direction is better.",
)


@dataclass(frozen=True)
class TokenSums:
    """Sums over the target tokens of each row, or group, float64, in their order."""

    tokens_R: np.ndarray  # number of target tokens
    sums_R: Mapping[str, np.ndarray]  # statistic -> its sum, (R,); `log_prob` in nats is always there

    def save(self, path: Path) -> None:
        """Write an .npz file."""
        np.savez(path, allow_pickle=False, tokens=self.tokens_R, **self.sums_R)

    @classmethod
    def load(cls, path: Path) -> TokenSums:
        """Read the file that `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            sums = dict(arrays)
        return cls(sums.pop("tokens"), sums)


def perplexity(sums: TokenSums, row_ids: Sequence[str]) -> Score:
    """Return the PPL over all target tokens; examples hold each row's nats per token and its tokens.

    Raises MetricError if nothing can be scored or the perplexity is not finite.
    """
    nats, examples = _mean(sums, "log_prob", row_ids, sign=-1)
    if nats > 700:
        raise MetricError(
            f"The mean negative log-likelihood is {nats:.1f} nats per token: its exponential is no number."
        )
    return PERPLEXITY.score(math.exp(nats), len(examples), examples=examples, aggregate="exp_mean")


def entropy(sums: TokenSums, row_ids: Sequence[str]) -> Score:
    """Return the mean entropy of the next-token distribution in nats, weighted by tokens; neither direction is better.

    `sums` must come from a pass with `needs={"entropy"}`.
    """
    nats, examples = _mean(sums, "entropy", row_ids)
    return ENTROPY.score(nats, len(examples), examples=examples)


def _mean(
    sums: TokenSums, name: str, row_ids: Sequence[str], sign: int = 1
) -> tuple[float, dict[str, tuple[float, float]]]:
    """Return a statistic's mean per token, and row id -> (the row's mean per token, its tokens).

    Rows without a target drop out. Raises MetricError if no row has a target, or if the mean is not finite.
    """
    if len(row_ids) != len(sums.tokens_R):
        raise ValueError(f"{len(sums.tokens_R)} rows, {len(row_ids)} ids")
    total = sums.tokens_R.sum()
    if total == 0:
        raise MetricError("No token can be scored: every row has fewer than two tokens, or no target among its labels.")
    mean = sign * float(sums.sums_R[name].sum() / total)
    if not np.isfinite(mean):
        raise MetricError(
            f"The mean {name} of {int(total)} tokens is {mean}: the model gives logits that are not finite."
        )
    examples = {}
    for row, value, count in zip(row_ids, sums.sums_R[name].tolist(), sums.tokens_R.tolist(), strict=True):
        if count:
            examples[row] = (sign * value / count, count)
    return mean, examples
