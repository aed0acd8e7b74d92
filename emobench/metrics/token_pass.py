"""One pass of a model over rows of tokens, reduced to sums per row or group of tokens: what PPL and entropy are of.

Legend: R rows or groups, B rows of a batch, T positions, N target tokens, D hidden width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from emobench.core.errors import MetricError
from emobench.metrics.batching import by_length, check_context, pad, reading
from emobench.models.head import Head, final_hidden
from emobench.objectives import IGNORED, token_statistics

Row = Mapping[str, Sequence[int]]


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
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            return cls(arrays["tokens"], {name: arrays[name] for name in arrays.files if name != "tokens"})


def evaluate_tokens(
    model: Any,
    head: Head,
    rows: Sequence[Row],
    needs: frozenset[str] | set[str] = frozenset({"log_prob"}),
    *,
    groups: Sequence[np.ndarray] | None = None,
    token_budget: int = 16384,
    progress: Callable[[int, int], None] | None = None,
) -> TokenSums:
    """Sum the statistics named in `needs` over each row's target tokens, without holding the logits of a batch.

    A row has `input_ids` and, where not every token is a target, `labels` of the same length (unshifted: position t
    predicts label t + 1; -100 is no target). The first position is never a target. `groups` has, for each row, the
    number of the group that each of its tokens is summed into; without it a row is a group.
    """
    names = frozenset(needs) | {"log_prob"}
    count = len(rows) if groups is None else 1 + max(int(group.max()) for group in groups)
    groups = [np.full(len(row["input_ids"]), i) for i, row in enumerate(rows)] if groups is None else groups
    tokens_R = np.zeros(count)
    sums_R = {name: np.zeros(count) for name in names}
    done = 0
    lengths = [len(row["input_ids"]) for row in rows]
    check_context(model, max(lengths, default=0), "The longest row does not fit")
    with reading(model) as device:
        for batch in by_length(lengths, token_budget):
            statistics, row_N, place_N = _batch(model, head, [rows[i] for i in batch], names, device)
            group_N = np.concatenate([groups[i] for i in batch])[_starts(lengths, batch)[row_N] + place_N]
            tokens_R += np.bincount(group_N, minlength=count)
            for name in names:
                sums_R[name] += np.bincount(group_N, statistics[name], minlength=count)
            done += len(batch)
            if progress is not None:
                progress(done, len(rows))
    return TokenSums(tokens_R, sums_R)


def mean_of(
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
    rows = zip(row_ids, sums.sums_R[name].tolist(), sums.tokens_R.tolist(), strict=True)
    return mean, {row: (sign * value / count, count) for row, value, count in rows if count}


def _starts(lengths: Sequence[int], batch: Sequence[int]) -> np.ndarray:
    """Return (B,) where each row begins in the rows of a batch end to end."""
    return np.cumsum([0, *(lengths[i] for i in batch[:-1])])


def _batch(
    model: Any, head: Head, rows: Sequence[Row], names: frozenset[str], device: torch.device
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Return the statistics of the target tokens, (N,) float64, and the row and position of each, (N,)."""
    ids_BT, mask_BT = pad([row["input_ids"] for row in rows], 0, device)
    labels_BT, _ = pad([row.get("labels", row["input_ids"]) for row in rows], IGNORED, device)
    hidden_BTD = final_hidden(model, input_ids=ids_BT, attention_mask=mask_BT)
    is_target = labels_BT[:, 1:] != IGNORED
    hidden_ND, targets_N = hidden_BTD[:, :-1][is_target], labels_BT[:, 1:][is_target]
    row_N, place_N = is_target.nonzero().cpu().numpy().T
    statistics = token_statistics(hidden_ND, head, targets_N, names)
    return {name: statistics[name].double().cpu().numpy() for name in names}, row_N, place_N + 1
