"""Token statistics: what an objective can read about the model's next-token distribution.

Legend: N tokens, V vocabulary. With logits z, q = softmax(z) and target t:

    statistic       value                                    derivative by z_v
    log_prob        log q_t                                  1[v=t] - q_v
    expected_cost   u = sum_v q_v C(t, v); see cost.py       q_v (C(t, v) - u)
    entropy         H = -sum_v q_v log q_v                   -q_v (log q_v + H)
    log_partition   logsumexp z                              q_v
    mean_log_prob   (1/V) sum_v log q_v                      1/V - q_v
    sum_squares     sum_v q_v^2                              2 q_v (q_v - sum_w q_w^2)

Units: nats; `expected_cost` of cosines is in [0, 2], `sum_squares` in (0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from emobench.core.errors import PluginError, UnknownNameError

STATISTICS = ("log_prob", "expected_cost", "entropy", "log_partition", "mean_log_prob", "sum_squares")
GREEDY = "greedy"
"""1 where no token is more likely than the target, else 0. It has no derivative: `token_statistics` alone gives it."""


class TokenStatistics:
    """Statistics of N target tokens, each a float vector (N,), with their targets and side data.

    It contains `log_prob` and the statistics in the objective's `needs`. Reading any other one raises PluginError.
    `side` contains what `Objective.side_data` returned, (N, ...), in the order of the tokens.
    """

    def __init__(
        self, values: Mapping[str, Tensor], targets_N: Tensor, side: Mapping[str, Tensor] | None = None
    ) -> None:
        self.values = dict(values)
        """The available statistics, by name."""
        self.targets = targets_N
        self.side = dict(side or {})

    def __getitem__(self, name: str) -> Tensor:
        if name in self.values:
            return self.values[name]
        if name in STATISTICS:
            raise PluginError(
                f"The objective does not request the statistic '{name}'; write needs = {{'{name}'}} in the objective."
            )
        raise UnknownNameError("statistic", name, STATISTICS)

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def log_prob(self) -> Tensor:
        """log q_t in nats, (N,). Its negative is the MLE loss."""
        return self["log_prob"]

    @property
    def expected_cost(self) -> Tensor:
        """u = sum_v q_v C(t, v), (N,): the DEMD of Eq. 14 for a one-hot target. Of 1 - cosine, it is in [0, 2]."""
        return self["expected_cost"]

    @property
    def entropy(self) -> Tensor:
        """Entropy of q in nats, (N,)."""
        return self["entropy"]

    @property
    def log_partition(self) -> Tensor:
        """logsumexp of the logits in nats, (N,)."""
        return self["log_partition"]

    @property
    def mean_log_prob(self) -> Tensor:
        """Mean of log q_v over the vocabulary in nats, (N,). Label smoothing uses it."""
        return self["mean_log_prob"]

    @property
    def sum_squares(self) -> Tensor:
        """sum_v q_v^2, (N,)."""
        return self["sum_squares"]

    def detach(self) -> TokenStatistics:
        """Return the same statistics without gradients."""
        return TokenStatistics({k: v.detach() for k, v in self.values.items()}, self.targets, self.side)


def statistics_from_logits(
    logits_NV: Tensor, targets_N: Tensor, needs: frozenset[str], cost_NV: Tensor | None
) -> dict[str, Tensor]:
    """Return the statistics of logits in plain differentiable torch. This is their definition and the reference.

    `cost_NV` contains c_v for each token's target. Only `expected_cost` needs it.
    """
    logq_NV = torch.log_softmax(logits_NV, dim=-1)
    q_NV = logq_NV.exp()
    values = {"log_prob": logq_NV.gather(1, targets_N[:, None])[:, 0]}
    if "expected_cost" in needs:
        assert cost_NV is not None
        values["expected_cost"] = (q_NV * cost_NV).sum(-1)
    if "entropy" in needs:
        # 0 log 0 = 0, also for the gradient: a logit of -inf adds nothing.
        values["entropy"] = -(q_NV * logq_NV.masked_fill(q_NV == 0, 0)).sum(-1)
    if "log_partition" in needs:
        values["log_partition"] = torch.logsumexp(logits_NV, dim=-1)
    if "mean_log_prob" in needs:
        values["mean_log_prob"] = logq_NV.mean(-1)
    if "sum_squares" in needs:
        values["sum_squares"] = q_NV.square().sum(-1)
    return values
