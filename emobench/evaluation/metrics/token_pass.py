"""One pass of a model over rows of tokens, reduced to sums per row: what PPL and entropy are made of.

Legend: R rows, B rows of a batch, T positions, N target tokens, D hidden width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from emobench.errors import MetricError
from emobench.evaluation.generation.batching import by_length, check_context, pad, reading
from emobench.models.head import Head, final_hidden
from emobench.objectives import IGNORED, token_statistics

Row = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class TokenSums:
    """Sums over the target tokens of each row, float64, in the order of the rows."""

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
    token_budget: int = 16384,
    progress: Callable[[int, int], None] | None = None,
) -> TokenSums:
    """Sum the statistics named in `needs` over each row's target tokens, without holding the logits of a batch.

    A row has `input_ids` and, where not every token is a target, `labels` of the same length (unshifted: position t
    predicts label t + 1; -100 is no target). The first position is never a target.
    """
    names = frozenset(needs) | {"log_prob"}
    tokens_R = np.zeros(len(rows))
    sums_R = {name: np.zeros(len(rows)) for name in names}
    done = 0
    lengths = [len(row["input_ids"]) for row in rows]
    check_context(model, max(lengths, default=0), "The longest row does not fit")
    with reading(model) as device:
        for batch in by_length(lengths, token_budget):
            tokens_B, sums_B = _batch_sums(model, head, [rows[i] for i in batch], names, device)
            tokens_R[batch] = tokens_B
            for name in names:
                sums_R[name][batch] = sums_B[name]
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


def _batch_sums(
    model: Any, head: Head, rows: Sequence[Row], names: frozenset[str], device: torch.device
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    ids_BT, mask_BT = pad([row["input_ids"] for row in rows], 0, device)
    labels_BT, _ = pad([row.get("labels", row["input_ids"]) for row in rows], IGNORED, device)
    hidden_BTD = final_hidden(model, input_ids=ids_BT, attention_mask=mask_BT)
    is_target = labels_BT[:, 1:] != IGNORED
    hidden_ND, targets_N = hidden_BTD[:, :-1][is_target], labels_BT[:, 1:][is_target]
    row_N = is_target.nonzero()[:, 0].cpu().numpy()
    statistics = token_statistics(hidden_ND, head, targets_N, names)
    sums = {name: np.bincount(row_N, statistics[name].double().cpu().numpy(), minlength=len(rows)) for name in names}
    return np.bincount(row_N, minlength=len(rows)).astype(np.float64), sums
