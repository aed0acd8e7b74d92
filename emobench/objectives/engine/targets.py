"""The target tokens of a micro-batch in the order and the chunks of the engine, prepared before the model runs.

Legend: N all tokens of a micro-batch, M target tokens (label not -100), C tokens of a chunk, U distinct targets of it.

Everything that depends only on the labels is computed here (which tokens count, their order, the chunks), so the loss
itself never waits for the device. A training computes it on the host, while the device works on the batch before.
Equal targets are neighbours, so each chunk needs few cost rows, and each row is computed once. *Different* targets are
ordered by a hash of their ids: this spreads frequent and rare targets evenly, and all chunks have about the same size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from emobench.data.packing import IGNORE as IGNORED

_SCRAMBLE = 2_654_435_761  # odd: a bijection of 32-bit ids (Knuth, The Art of Computer Programming, 6.4)


@dataclass(frozen=True)
class Chunk:
    """A range of the ordered target tokens, and the distinct targets in it whose cost rows must be computed."""

    start: int
    stop: int
    distinct_U: Tensor
    index_C: Tensor
    """For each token, its index in `distinct_U`, or -1 - k for the k-th cost row that the embedding keeps."""


@dataclass(frozen=True)
class Targets:
    """The target tokens of a micro-batch, with equal targets together, divided into chunks."""

    order_M: Tensor
    """Positions of the target tokens among the flattened N tokens."""
    ids_M: Tensor
    """The targets in that order."""
    chunks: tuple[Chunk, ...]
    tokens: int
    """N."""

    def __len__(self) -> int:
        return len(self.ids_M)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Targets:
        """Return the targets on a device. The name and the arguments are those of a tensor, which loaders call."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Targets:
        """Return the targets in memory from which a GPU can copy while the host goes on."""
        return self._each(torch.Tensor.pin_memory)

    def _each(self, change: Callable[[Tensor], Tensor]) -> Targets:
        chunks = (
            replace(chunk, distinct_U=change(chunk.distinct_U), index_C=change(chunk.index_C)) for chunk in self.chunks
        )
        return replace(self, order_M=change(self.order_M), ids_M=change(self.ids_M), chunks=tuple(chunks))

    @property
    def most_tokens(self) -> int:
        """Number of tokens of the largest chunk."""
        return max(chunk.stop - chunk.start for chunk in self.chunks)

    @property
    def most_distinct(self) -> int:
        """Largest number of cost rows that one chunk computes."""
        return max(len(chunk.distinct_U) for chunk in self.chunks)


def prepare_targets(labels: Tensor, *, chunk_rows: int, with_cost: bool, slot_V: Tensor | None = None) -> Targets:
    """Return the targets of labels of any shape. Tokens with label -100 are left out.

    All chunks have the same number of tokens, up to one. The chunks are as large as possible such that the tokens and
    the distinct targets of a chunk are together at most `chunk_rows`. `slot_V` gives the tokens whose cost rows are
    kept. It does not move the chunks, so the sums over chunks do not depend on it.
    """
    flat_N = labels.reshape(-1).long()
    order_M = (flat_N != IGNORED).nonzero()[:, 0]
    ids_M = flat_N[order_M]
    _, by_target_M = (ids_M * _SCRAMBLE % 2**32).sort(stable=True)
    order_M, ids_M = order_M[by_target_M], ids_M[by_target_M]
    if not with_cost:
        cuts = _even_cuts(len(ids_M), max(1, -(-len(ids_M) // chunk_rows)))
        empty = ids_M[:0]
        return Targets(order_M, ids_M, tuple(Chunk(a, b, empty, empty) for a, b in cuts), flat_N.numel())
    distinct, inverse_M = torch.unique_consecutive(ids_M, return_inverse=True)
    kept = torch.full_like(distinct, -1) if slot_V is None else slot_V.to(distinct.device)[distinct]
    new = kept < 0
    made = new.cumsum(0) - new.long()  # number of new cost rows before each distinct target
    cuts = _cuts(inverse_M.cpu(), chunk_rows)
    chunks = []
    for start, stop, first, last in cuts:
        slot = torch.where(new, made - made[first : first + 1], -1 - kept)
        chunks.append(Chunk(start, stop, distinct[first:last][new[first:last]], slot[inverse_M[start:stop]]))
    return Targets(order_M, ids_M, tuple(chunks), flat_N.numel())


def _cuts(distinct_M: Tensor, chunk_rows: int) -> list[tuple[int, int, int, int]]:
    """Return for each chunk: start, stop, and the range (first, last + 1) of its distinct targets.

    `distinct_M` numbers the distinct targets of the tokens, in their order.
    """
    tokens = len(distinct_M)
    if not tokens:
        return [(0, 0, 0, 0)]
    count = min(tokens, -(-(tokens + int(distinct_M[-1]) + 1) // chunk_rows))
    while True:
        starts, stops = torch.tensor(_even_cuts(tokens, count)).T
        first, last = distinct_M[starts], distinct_M[stops - 1] + 1
        if count >= tokens or int((stops - starts).max() + (last - first).max()) <= chunk_rows:
            return list(zip(starts.tolist(), stops.tolist(), first.tolist(), last.tolist(), strict=True))
        count = min(tokens, max(count + 1, count * 21 // 20))


def _even_cuts(tokens: int, count: int) -> list[tuple[int, int]]:
    """Divide 0..tokens into `count` ranges. 0 tokens give one empty range: all devices then log the same parts."""
    edges = [tokens * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def next_labels(value_BT: Tensor, fill: int) -> Tensor:
    """Shift to the position that predicts: position t gets the value of t + 1, and the last position gets `fill`."""
    shifted = torch.full_like(value_BT, fill)
    shifted[:, :-1] = value_BT[:, 1:]
    return shifted
