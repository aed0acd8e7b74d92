"""Batches of rows of unequal length, and a model that only reads: what every evaluation pass needs.

Legend: B rows, T positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from emobench.core.errors import ModelError
from emobench.models.head import context_of, eval_mode

Progress: TypeAlias = Callable[[int, int], None] | None
"""Takes the number of rows that were read and of all rows; None reports nothing."""


def by_length(lengths: Sequence[int], token_budget: int, most_padding: float = 1.0) -> list[list[int]]:
    """Group row indices, longest first, so that rows x longest stays within `token_budget` (at least one row each).

    Padding is at most `most_padding` of a batch, as a share. Longest first: if memory does not suffice, the first batch
    says so.
    """
    batches: list[list[int]] = []
    filled = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        filled += lengths[index]
        area = (len(batches[-1]) + 1) * lengths[batches[-1][0]] if batches else 0
        if batches and area <= token_budget and filled >= (1 - most_padding) * area:
            batches[-1].append(index)
        else:
            batches.append([index])
            filled = lengths[index]
    return batches


def read_batches(lengths: Sequence[int], token_budget: int, progress: Progress) -> Iterator[list[int]]:
    """Yield the batches of `by_length`, and report how many rows were read."""
    done = 0
    for batch in by_length(lengths, token_budget):
        yield batch
        done += len(batch)
        if progress is not None:
            progress(done, len(lengths))


def pad(
    rows: Sequence[Sequence[int]], value: int, device: torch.device, *, left: bool = False
) -> tuple[Tensor, Tensor]:
    """Return ids_BT, padded with `value`, and its attention mask (1 at real positions), both int64."""
    width = max(1, *map(len, rows))
    ids_BT = torch.full((len(rows), width), value, dtype=torch.long)
    mask_BT = torch.zeros_like(ids_BT)
    for i, row in enumerate(rows):
        at = slice(width - len(row), width) if left else slice(0, len(row))
        ids_BT[i, at] = torch.as_tensor(row, dtype=torch.long)
        mask_BT[i, at] = 1
    return ids_BT.to(device), mask_BT.to(device)


def check_context(model: Any, tokens: int, what: str) -> None:
    """Raise ModelError if `tokens` positions exceed the model's: on a GPU the embedding's own error says nothing."""
    context = context_of(model)
    if context is not None and tokens > context:
        raise ModelError(
            f"{what}: {tokens} positions, but {type(model).__name__} has {context}. "
            "Use shorter lengths, or a model with a longer context."
        )


@contextmanager
def reading(model: nn.Module) -> Iterator[torch.device]:
    """Eval mode without gradients; yields the device of the weights; every module gets its own mode back."""
    with torch.no_grad(), eval_mode(model):
        yield next(model.parameters()).device
