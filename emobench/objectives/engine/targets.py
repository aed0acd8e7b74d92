"""What the engine needs to know of the labels, prepared before the model runs.

Legend: N all tokens of a micro-batch, M target tokens (label not -100), C tokens of a chunk, U distinct targets of it.

Everything that depends on the labels alone (which tokens count, their order, the chunks) is found here, so that the
loss itself asks the device for nothing. Equal targets stand together, so that each chunk's cost rows are few and made
once; the order of *different* targets is a scramble of their ids, so that frequent and rare ones are dealt evenly and
all chunks have about the same size.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from emobench.data.packing import IGNORE as IGNORED

_SCRAMBLE = 2_654_435_761  # odd: a bijection of 32-bit ids (Knuth, The Art of Computer Programming, 6.4)


@dataclass(frozen=True)
class Chunk:
    """A run of the ordered target tokens, and the distinct targets among them whose cost rows have to be made."""

    start: int
    stop: int
    distinct_U: Tensor
    index_C: Tensor
    """Index into `distinct_U` of each token of the chunk; -1 - k where the row is the k-th that the embedding keeps."""


@dataclass(frozen=True)
class Targets:
    """The target tokens of a micro-batch, equal ones together, and cut into chunks."""

    order_M: Tensor
    """Positions of the target tokens among the flattened N tokens."""
    ids_M: Tensor
    """The targets, in that order."""
    chunks: tuple[Chunk, ...]
    tokens: int
    """N."""

    def __len__(self) -> int:
        return len(self.ids_M)

    @property
    def most_tokens(self) -> int:
        """Tokens of the largest chunk."""
        return max(chunk.stop - chunk.start for chunk in self.chunks)

    @property
    def most_distinct(self) -> int:
        """Cost rows that one chunk makes at most."""
        return max(len(chunk.distinct_U) for chunk in self.chunks)


def prepare_targets(labels: Tensor, *, chunk_rows: int, with_cost: bool, slot_V: Tensor | None = None) -> Targets:
    """Return the targets of flattened labels of any shape; label -100 is no target.

    All chunks have the same number of tokens, give or take one, the largest for which the most tokens and the most new
    cost rows of a chunk are at most `chunk_rows` together. `slot_V` says which tokens' cost rows are kept already.
    """
    flat_N = labels.reshape(-1).long()
    order_M = (flat_N != IGNORED).nonzero()[:, 0]
    ids_M = flat_N[order_M]
    _, by_target_M = (ids_M * _SCRAMBLE % 2**32).sort(stable=True)
    order_M, ids_M = order_M[by_target_M], ids_M[by_target_M]
    if not with_cost:
        cuts = _even_cuts(len(ids_M), max(1, -(-len(ids_M) // chunk_rows)))
        nothing = ids_M[:0]
        return Targets(order_M, ids_M, tuple(Chunk(a, b, nothing, nothing) for a, b in cuts), flat_N.numel())
    distinct, inverse_M = torch.unique_consecutive(ids_M, return_inverse=True)
    kept = torch.full_like(distinct, -1) if slot_V is None else slot_V.to(distinct.device)[distinct]
    new = kept < 0
    made_M = new.cumsum(0)[inverse_M]  # cost rows that tokens 0..i have needed
    is_new_M = new[inverse_M]
    cuts = _cuts(made_M.cpu(), is_new_M.cpu(), chunk_rows)
    new_distinct = distinct[new]
    chunks = []
    for start, stop, first, last in cuts:
        index_C = torch.where(is_new_M[start:stop], made_M[start:stop] - 1 - first, -1 - kept[inverse_M[start:stop]])
        chunks.append(Chunk(start, stop, new_distinct[first:last], index_C))
    return Targets(order_M, ids_M, tuple(chunks), flat_N.numel())


def _cuts(made_M: Tensor, is_new_M: Tensor, chunk_rows: int) -> list[tuple[int, int, int, int]]:
    """Return start, stop, and the first and last (excluded) of the new distinct targets of each chunk."""
    tokens = len(made_M)
    if not tokens:
        return [(0, 0, 0, 0)]
    count = min(tokens, -(-(tokens + int(made_M[-1])) // chunk_rows))
    while True:
        starts, stops = torch.tensor(_even_cuts(tokens, count)).T
        first, last = made_M[starts] - is_new_M[starts].long(), made_M[stops - 1]
        if count >= tokens or int((stops - starts).max() + (last - first).max()) <= chunk_rows:
            return list(zip(starts.tolist(), stops.tolist(), first.tolist(), last.tolist(), strict=True))
        count = min(tokens, max(count + 1, count * 21 // 20))


def _even_cuts(tokens: int, count: int) -> list[tuple[int, int]]:
    """Cut 0..tokens into `count` runs; one, empty, where there is no token: all devices then log the same parts."""
    edges = [tokens * i // count for i in range(count + 1)]
    return list(pairwise(edges))
