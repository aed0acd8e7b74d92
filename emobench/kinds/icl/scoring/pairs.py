"""What has to be scored: (position, next token) pairs of a batch of prompts, those of a shared prefix only once.

Legend: N pairs, B examples, L labels of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emobench.kinds.icl.prompts.prompts import Prompt

SHARED = -1


@dataclass(frozen=True)
class Pairs:
    """The scored tokens of a batch, int64 (N,) each: by example, the shared ones first, then label by label."""

    example_N: np.ndarray
    """The prompt's place in the batch."""
    label_N: np.ndarray
    """The label's place among the prompt's, SHARED (-1) for a token that all labels have."""
    place_N: np.ndarray
    """The token's own place in its prompt, at least 1: it is predicted from the place before."""
    target_N: np.ndarray
    """The token."""

    def __len__(self) -> int:
        return len(self.target_N)

    def __getitem__(self, chosen_N: np.ndarray | slice) -> Pairs:
        return Pairs(self.example_N[chosen_N], self.label_N[chosen_N], self.place_N[chosen_N], self.target_N[chosen_N])


def pairs_of(prompts: Sequence[Prompt], shared: Sequence[int], skip: int | None) -> Pairs:
    """Return the pairs of prompts of which so many first tokens are scored once for all labels.

    A prompt's first token is never scored, nor is the token `skip`: as in OpenICL, whose padding is the EOS.
    """
    parts: list[tuple[int, int, int, Sequence[int]]] = []  # example, label, first place, tokens from there on
    for example, (prompt, together) in enumerate(zip(prompts, shared, strict=True)):
        if together > 1:
            parts.append((example, SHARED, 1, prompt.tokens[0][1:together]))
        first = max(1, together)
        parts += [(example, label, first, ids[first:]) for label, ids in enumerate(prompt.tokens) if len(ids) > first]
    if not parts:
        return Pairs(*(np.zeros(0, dtype=np.int64) for _ in range(4)))
    counts = [len(ids) for _, _, _, ids in parts]
    pairs = Pairs(
        np.repeat([example for example, _, _, _ in parts], counts),
        np.repeat([label for _, label, _, _ in parts], counts),
        np.concatenate([np.arange(first, first + len(ids)) for _, _, first, ids in parts]),
        np.concatenate([np.asarray(ids, dtype=np.int64) for _, _, _, ids in parts]),
    )
    return pairs if skip is None else pairs[pairs.target_N != skip]
