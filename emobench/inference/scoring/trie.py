"""The prompts of a batch as a trie: every token that several prompts begin with is read, and scored, once.

A row of a batch holds the prompts of one example or of several that begin alike, in depth-first order: a token sees the
tokens from the root to itself, which are those whose subtree it lies in. What all rows of a batch begin with, the
trunk, is read once for many batches, and is in no row. The last token of a prompt predicts nothing and is not read.

Legend: K nodes (a token behind what comes before it), N nodes that are scored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from emobench.inference.scoring.prompts import LabelPrompts

TRUNK = -1
"""The parent of a node that comes directly behind the trunk, or of a prompt's first token where there is none."""


@dataclass(frozen=True)
class TrieRow:
    """The nodes of a row, in depth-first order; int64 (K,) each."""

    token_K: np.ndarray
    place_K: np.ndarray
    """The node's place in its prompts, from 0."""
    parent_K: np.ndarray
    end_K: np.ndarray
    """The first node behind the node's subtree."""
    owner_K: np.ndarray
    """The first prompt that has the node, as (example, label): (K, 2)."""
    paths: dict[tuple[int, int], np.ndarray]
    """(example, label) -> its nodes, from the trunk on."""

    @property
    def read_K(self) -> np.ndarray:
        """Whether a node predicts another one, and so is read."""
        read_K = np.zeros(len(self.token_K), dtype=bool)
        read_K[self.parent_K[self.parent_K != TRUNK]] = True
        return read_K


def make_row(prompts: Sequence[LabelPrompts], examples: Sequence[int], trunk: int) -> TrieRow:
    """Return the row of some examples' prompts, without the `trunk` first tokens that all of them have."""
    keys = sorted((ids, b, label) for b in examples for label, ids in enumerate(prompts[b].tokens))
    tokens, places, parents, owners = [], [], [], []
    end_of: list[tuple[np.ndarray, int]] = []
    paths: dict[tuple[int, int], np.ndarray] = {}
    last, path_K, count = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0
    for ids, b, label in keys:
        ids_T = np.asarray(ids[trunk:], dtype=np.int64)
        same = _alike(last, ids_T)
        end_of.append((path_K[same:], count))
        own_K = np.arange(count, count + len(ids_T) - same)
        tokens.append(ids_T[same:])
        places.append(np.arange(trunk + same, trunk + len(ids_T)))
        before = path_K[same - 1 : same] if same else [TRUNK]
        parents.append(np.concatenate([before, own_K[:-1]])[: len(own_K)])
        owners.append(np.tile([b, label], (len(own_K), 1)))
        last, path_K, count = ids_T, np.concatenate([path_K[:same], own_K]), count + len(own_K)
        paths[b, label] = path_K
    end_of.append((path_K, count))
    end_K = np.zeros(count, dtype=np.int64)
    for closed_K, end in end_of:
        end_K[closed_K] = end
    token_K, place_K, parent_K = (np.concatenate(part).astype(np.int64) for part in (tokens, places, parents))
    owner_K = np.concatenate(owners).astype(np.int64).reshape(-1, 2)
    return TrieRow(token_K, place_K, parent_K, end_K, owner_K, paths)


def _alike(one_T: np.ndarray, other_T: np.ndarray) -> int:
    """Return how many first tokens two prompts share."""
    short = min(len(one_T), len(other_T))
    differ = np.flatnonzero(one_T[:short] != other_T[:short])
    return int(differ[0]) if len(differ) else short


def read_count(row: TrieRow) -> int:
    return int(row.read_K.sum())


def shared_tokens(one: LabelPrompts, other: LabelPrompts) -> int:
    """Return how many first tokens all labels' prompts of two examples share."""
    short = min(one.shared, other.shared)
    return _alike(np.asarray(one.tokens[0][:short]), np.asarray(other.tokens[0][:short]))


@dataclass(frozen=True)
class Trunk:
    """Examples, by their places, that begin with the same tokens; 0 tokens for those that stand alone."""

    tokens: int
    examples: tuple[int, ...]


def trunks(prompts: Sequence[LabelPrompts], least: int, worth: int) -> list[Trunk]:
    """Divide examples into groups whose common beginning is worth reading once, in the order of their tokens.

    A group of n examples with c tokens in common saves (n - 1) c, and costs a pass of its own: c must be at least
    `least`, and the saving at least `worth` tokens. Of such divisions this is the one that saves most.
    """
    order = sorted(range(len(prompts)), key=lambda i: prompts[i].tokens[0][: prompts[i].shared])
    common = [shared_tokens(prompts[i], prompts[j]) for i, j in itertools.pairwise(order)]
    # Over a place with less in common no trunk goes.
    cuts = [i + 1 for i, tokens in enumerate(common) if tokens < least]
    groups = []
    for first, stop in itertools.pairwise([0, *cuts, len(order)]):
        for tokens, a, b in _divide(common, first, stop, worth):
            groups.append(Trunk(tokens, tuple(order[a:b])))
    return groups


def _divide(common: Sequence[int], first: int, stop: int, worth: int) -> Iterator[tuple[int, int, int]]:
    """Yield (tokens, first, stop) of each group; `common[i]` is what the places i and i + 1 share."""
    # An explicit stack: as many levels as examples are possible.
    solved: dict[tuple[int, int], tuple[int, list[tuple[int, int, int]]]] = {}
    stack = [(first, stop)]
    while stack:
        a, b = stack[-1]
        if b - a == 1:
            solved[a, b] = (0, [(0, a, b)])
            stack.pop()
            continue
        lowest = min(common[a : b - 1])
        cuts = [i + 1 for i in range(a, b - 1) if common[i] == lowest]
        parts = list(itertools.pairwise([a, *cuts, b]))
        open_parts = [part for part in parts if part not in solved]
        if open_parts:
            stack += open_parts
            continue
        stack.pop()
        apart = sum(solved[part][0] for part in parts)
        together = (b - a - 1) * lowest
        if together >= max(apart, worth):
            solved[a, b] = (together, [(lowest, a, b)])
        else:
            solved[a, b] = (apart, list(itertools.chain.from_iterable(solved[part][1] for part in parts)))
    yield from solved[first, stop][1] if stop > first else ()
