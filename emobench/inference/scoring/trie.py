"""Prompts as a trie: every token that several prompts begin with is read, and scored, once.

A row of a batch holds the prompts of one example, or of several that begin alike, in depth-first order. A token sees
the tokens from the root to itself: those whose subtree it lies in. The tokens that all rows of a batch begin with, the
trunk, are read once for many batches, and are in no row. The last token of a prompt predicts nothing and is not read.

Legend: K nodes (a token behind the tokens before it), T tokens of a prompt behind the trunk.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

Paths: TypeAlias = dict[tuple[int, int], np.ndarray]
"""(example, label) -> an array over the nodes of the prompt."""

TRUNK = -1
"""The parent of a node directly behind the trunk, or of a prompt's first token if there is no trunk."""
DEEPEST = 200
"""Levels of trunks inside one another that are considered."""


@dataclass(frozen=True, kw_only=True)
class LabelPrompts:
    """The tokenized prompts of one example, one for each label (or answer, or choice)."""

    id: str
    """Unique among the prompts that are scored together."""
    tokens: tuple[tuple[int, ...], ...]
    """Each label's whole prompt. A model with a context of C tokens reads prompts of up to C + 1: it does not read the
    last token."""
    label_starts: tuple[int, ...] | None
    """The place of each label's own first token; None if it is unknown."""

    @cached_property
    def shared(self) -> int:
        """The number of tokens that all labels' prompts begin with."""
        for place, column in enumerate(zip(*self.tokens, strict=False)):
            if len(set(column)) > 1:
                return place
        return min(map(len, self.tokens))

    @property
    def longest(self) -> int:
        """The number of tokens of the longest prompt."""
        return max(map(len, self.tokens))


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
    paths: Paths
    """(example, label) -> its nodes, from the trunk on."""

    @cached_property
    def read_K(self) -> np.ndarray:
        """Whether a node predicts another one, and so is read."""
        read_K = np.zeros(len(self.token_K), dtype=bool)
        read_K[self.parent_K[self.parent_K != TRUNK]] = True
        return read_K

    @property
    def slots(self) -> int:
        """The number of tokens that are read."""
        return int(self.read_K.sum())

    @property
    def branches(self) -> bool:
        """Whether two tokens are read behind one: the row is no plain text and needs a mask."""
        return len(np.unique(self.parent_K[self.read_K])) < self.slots


def make_row(prompts: Sequence[LabelPrompts], examples: Sequence[int], trunk: int = 0) -> TrieRow:
    """Return the row of some examples' prompts, without the `trunk` first tokens that all of them have."""
    keys = []
    for b in examples:
        keys += [(ids, b, label) for label, ids in enumerate(prompts[b].tokens)]
    tokens, places, parents, owners, closed = [], [], [], [], []
    paths: Paths = {}
    last_T, path_K, count = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0
    for ids, b, label in sorted(keys):
        ids_T = np.asarray(ids[trunk:], dtype=np.int64)
        same = alike(last_T, ids_T)
        closed.append((path_K[same:], count))
        own_K = np.arange(count, count + len(ids_T) - same)
        before = path_K[same - 1 : same] if same else [TRUNK]
        tokens.append(ids_T[same:])
        places.append(np.arange(trunk + same, trunk + len(ids_T)))
        parents.append(np.concatenate([before, own_K[:-1]])[: len(own_K)])
        owners.append(np.tile([b, label], (len(own_K), 1)))
        last_T, path_K, count = ids_T, np.concatenate([path_K[:same], own_K]), count + len(own_K)
        paths[b, label] = path_K
    end_K = np.full(count, count)
    for path_K, end in closed:
        end_K[path_K] = end
    token_K, place_K, parent_K, owner_K2 = (
        np.concatenate(part).astype(np.int64) for part in (tokens, places, parents, owners)
    )
    return TrieRow(token_K, place_K, parent_K, end_K, owner_K2.reshape(-1, 2), paths)


def alike(one: Sequence[int] | np.ndarray, other: Sequence[int] | np.ndarray) -> int:
    """Return how many first tokens two texts share."""
    short = min(len(one), len(other))
    differ = np.flatnonzero(np.asarray(one[:short]) != np.asarray(other[:short]))
    return int(differ[0]) if len(differ) else short


Trunk = tuple[int, tuple[int, ...]]
"""The number of tokens that some texts begin with, and their places; 0 tokens for a text that stands alone."""


def trunks(starts: Sequence[tuple[int, ...]], least: int, worth: int) -> list[Trunk]:
    """Divide texts into groups whose common beginning is worth reading once, in the order of their tokens.

    A group of n texts with c tokens in common saves (n - 1) c, and costs a pass of its own: c must be at least `least`,
    and the saving at least `worth` tokens. Of such divisions this is the one that saves most.
    """
    order = sorted(range(len(starts)), key=lambda i: starts[i])
    common = [alike(starts[i], starts[j]) for i, j in itertools.pairwise(order)]

    def divide(first: int, stop: int, depth: int) -> tuple[int, list[Trunk]]:
        if stop - first == 1 or depth == DEEPEST:
            return 0, [(0, (i,)) for i in order[first:stop]]
        lowest = min(common[first : stop - 1])
        cuts = [i + 1 for i in range(first, stop - 1) if common[i] == lowest]
        saved, groups = 0, []
        for a, b in itertools.pairwise([first, *cuts, stop]):
            part, inside = divide(a, b, depth + 1)
            saved += part
            groups += inside
        together = (stop - first - 1) * lowest
        if lowest >= least and together >= max(saved, worth):
            return together, [(lowest, tuple(order[first:stop]))]
        return saved, groups

    return divide(0, len(order), 0)[1]
