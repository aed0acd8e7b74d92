"""What the engine needs to know of the labels, prepared before the model runs.

Legend: N all tokens of a micro-batch, M target tokens (label not -100), U distinct targets of a chunk.

Everything that depends on the labels alone (which tokens count, their order, the chunks) is found here, so that the
loss itself asks the device for nothing. Tokens are sorted by target: a chunk then has few distinct targets, and the
cost rows that it needs are few.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from emobench.data.packing import IGNORE as IGNORED


@dataclass(frozen=True)
class Chunk:
    """A run of sorted target tokens, and the distinct targets among them."""

    start: int
    stop: int
    distinct_U: Tensor
    inverse_C: Tensor
    """Index into `distinct_U` of each token of the chunk."""


@dataclass(frozen=True)
class Targets:
    """The target tokens of a micro-batch, sorted by target, and cut into chunks."""

    order_M: Tensor
    """Positions of the target tokens among the flattened N tokens."""
    ids_M: Tensor
    """The targets, in that order."""
    chunks: tuple[Chunk, ...]
    tokens: int
    """N."""

    def __len__(self) -> int:
        return len(self.ids_M)


def prepare_targets(labels: Tensor, *, chunk_rows: int, with_cost: bool) -> Targets:
    """Return the targets of flattened labels of any shape; label -100 is no target.

    A chunk holds at most `chunk_rows` rows of vocabulary size: its logits and, `with_cost`, its distinct cost rows.
    """
    flat_N = labels.reshape(-1)
    order_M = (flat_N != IGNORED).nonzero()[:, 0]
    ids_M, by_target_M = flat_N[order_M].sort(stable=True)
    order_M = order_M[by_target_M]
    distinct, inverse_M = torch.unique_consecutive(ids_M, return_inverse=True)
    inverse = inverse_M.cpu()
    # rows[i]: rows that tokens 0..i hold together; it grows by one or two, so a chunk's end is a search.
    rows = torch.arange(1, len(inverse) + 1) + (inverse + 1 if with_cost else 0)
    chunks, start = [], 0
    while start < len(inverse):
        held_before = int(rows[start]) - (2 if with_cost else 1)
        stop = max(start + 1, int(torch.searchsorted(rows, held_before + chunk_rows, right=True)))
        first, last = int(inverse[start]), int(inverse[stop - 1])
        chunks.append(Chunk(start, stop, distinct[first : last + 1], inverse_M[start:stop] - first))
        start = stop
    if not chunks:
        # One empty chunk, so that an objective logs the same parts on every device and micro-batch.
        chunks.append(Chunk(0, 0, distinct, inverse_M))
    return Targets(order_M, ids_M, tuple(chunks), flat_N.numel())
