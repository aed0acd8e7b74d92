"""The arithmetic of the engine on a block of rows: logits -> statistics, and coefficients -> d loss / d logits.

Legend: R rows (tokens) of a block, V vocabulary. All in float32 (float64 if the inputs are).
These two functions are what a GPU kernel replaces; `statistics.py` holds the same quantities as plain equations.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_TINY_TARGET = 1e-20  # below this share of the largest logit's mass, log1p(rest / target) would overflow or lose digits


def reduce_rows(
    logits_RV: Tensor, targets_R: Tensor, cost_RV: Tensor | None, needs: frozenset[str]
) -> dict[str, Tensor]:
    """Return the statistics of a block of logits, each (R,).

    The target's own mass is left out of every sum and added in closed form: log_prob as -log1p(rest / target) keeps
    its digits where the model is confident, and `expected_cost` is a sum of non-negative terms (no 1 - cos cancels).
    """
    top_R = logits_RV.amax(dim=1)
    target_logit_R = logits_RV.gather(1, targets_R[:, None])[:, 0]
    mass_RV = (logits_RV - top_R[:, None]).exp_()
    target_mass_R = (target_logit_R - top_R).exp()
    mass_RV.scatter_(1, targets_R[:, None], 0)
    rest_R = mass_RV.sum(dim=1)
    total_R = rest_R + target_mass_R
    log_partition_R = top_R + total_R.log()
    log_prob_R = torch.where(
        target_mass_R > _TINY_TARGET, -torch.log1p(rest_R / target_mass_R), target_logit_R - log_partition_R
    )
    values = {"log_prob": log_prob_R, "log_partition": log_partition_R}
    if "expected_cost" in needs:
        assert cost_RV is not None
        values["expected_cost"] = torch.linalg.vecdot(mass_RV, cost_RV) / total_R
    if "mean_log_prob" in needs:
        values["mean_log_prob"] = logits_RV.mean(dim=1) - log_partition_R
    if "sum_squares" in needs:
        values["sum_squares"] = mass_RV.square().sum(dim=1) / total_R**2 + log_prob_R.exp() ** 2
    if "entropy" in needs:
        # entr(0) = 0, so a vocabulary entry masked by -inf does no harm.
        mass_RV /= total_R[:, None]
        values["entropy"] = torch.special.entr(mass_RV).sum(dim=1) - log_prob_R * log_prob_R.exp()
    return values


def differentiate_rows(
    logits_RV: Tensor,
    targets_R: Tensor,
    cost_RV: Tensor | None,
    values: Mapping[str, Tensor],
    slopes: Mapping[str, Tensor],
) -> None:
    """Overwrite a block of logits by d loss / d logits.

    `slopes` holds d loss / d statistic, (R,), for each statistic that the loss depends on. From the table in
    `statistics.py`, with slopes a (log_prob), b (expected_cost), h (entropy), l (log_partition), m (mean_log_prob)
    and s (sum_squares): dz_v = q_v (A + b c_v - h log q_v + 2 s q_v) + m/V, with
    A = -a - b u - h H + l - m - 2 s sum q^2; at the target, where c = 0, a is added and (1 - q_t) is -expm1(log q_t).
    """
    vocabulary = logits_RV.shape[1]
    log_prob_R = values["log_prob"]
    base_R = torch.zeros_like(log_prob_R)
    for name, sign in (("expected_cost", -1.0), ("entropy", -1.0), ("sum_squares", -2.0)):
        if name in slopes:
            base_R += sign * slopes[name] * values[name]
    base_R += slopes.get("log_partition", 0.0)
    base_R -= slopes.get("mean_log_prob", 0.0)
    a_R = slopes.get("log_prob", torch.zeros_like(log_prob_R))
    target_q_R = log_prob_R.exp()
    target_factor_R = base_R.clone()

    q_RV = logits_RV.sub_(values["log_partition"][:, None]).exp_()
    factor_RV = (base_R - a_R)[:, None]
    if "expected_cost" in slopes:
        assert cost_RV is not None
        factor_RV = torch.addcmul(factor_RV, cost_RV, slopes["expected_cost"][:, None])
    if "sum_squares" in slopes:
        factor_RV = torch.addcmul(factor_RV, q_RV, 2 * slopes["sum_squares"][:, None])
        target_factor_R += 2 * slopes["sum_squares"] * target_q_R
    entropy_RV = None
    if "entropy" in slopes:
        entropy_RV = torch.special.entr(q_RV).mul_(slopes["entropy"][:, None])
        target_factor_R -= slopes["entropy"] * log_prob_R
    q_RV.mul_(factor_RV)
    target_R = -a_R * torch.expm1(log_prob_R) + target_q_R * target_factor_R
    if entropy_RV is not None:
        q_RV.add_(entropy_RV)
    q_RV.scatter_(1, targets_R[:, None], target_R[:, None])
    if "mean_log_prob" in slopes:
        q_RV.add_(slopes["mean_log_prob"][:, None] / vocabulary)
