"""Unbiased (ancestral) sampling, the same whatever the batch.

The random numbers of a row depend on (seed, prompt id, sample index) only, and a token is found by walking down a
binary tree over the vocabulary: at each node, one uniform number against the left half's share of the mass. The usual
inverse of the cumulative distribution is as unbiased, but there float32 noise of the logits (another batch size, other
padding) moves tens of thousands of boundaries: measured with 8,192 tokens, it changed 1 token in 3,000, the tree none
in 128,000. Between 5 rows and 320, on a CPU, the noise moved the shares along a path by 1e-6 in sum, so that about one
token in a million would fall on the other side of a near tie. A near tie is therefore settled by logits that know no
batch: those of the row read alone, from its first token on. Whether a share counts as near may depend on the batch, and
then both ways agree, because the noise is far smaller than the limit NEAR. Noise moves the logarithms of masses,
so that a share p moves by p (1 - p) times as much; distances are taken in this unit.

All this holds for plain sampling at a temperature near 1; a low one enlarges the noise. The cuts of top-k, top-p, min-p
and typical come before the draw and are boundaries of their own: where noise moves an id across a cut, its whole mass
comes or goes, and no near tie need be there to be settled. With a cut, a text may depend on its batch where a score
lies within the noise of the cut.

Legend: R rows (prompt x sample), V vocabulary, S steps, L levels of the tree, K blocks of the vocabulary, J ids of one,
A rows that are still written.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LogitsProcessor

BLOCK_BITS = 7
NEAR = 2e-4
"""The limit of a near tie, in log-odds. About one token in two thousand is below it.

It is 3 times the largest noise that was measured with SmolLM2-135M, 7.0e-5 in 19,200 nodes, and 50 times its median.
"""
LEAST = 1e-300
"""The value of a product of masses that is zero, here and in `draw_kernel.py`."""


def levels_of(vocabulary: int) -> int:
    """Return the levels of the tree: ceil(log2 V)."""
    return (vocabulary - 1).bit_length()


def row_uniforms(seed: int, prompt_key: str, sample: int, steps: int, levels: int) -> np.ndarray:
    """Return uniform_SL in [0, 1), float64, from Philox keyed by the sha256 of (seed, prompt id, sample index)."""
    digest = hashlib.sha256(f"{seed}\n{prompt_key}\n{sample}".encode()).digest()
    generator = np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))
    return generator.random((steps, levels))


class DrawnIds(NamedTuple):
    """One id for each row, and its margin: see `descend`; both (R,).

    `finite`, (), says whether all masses were.
    """

    ids_R: Tensor
    margin_R: Tensor
    finite: Tensor


def draw(scores_RV: Tensor, uniform_RL: Tensor) -> DrawnIds:
    """Draw an id for each row from scores, whose exponentials are its masses. On a CPU the scores are overwritten.

    The upper levels need no more than the sums of blocks of 128 ids, the lower ones a single block: one pass over the
    vocabulary. Sums and shares are float64 from there on; a block's own sum is float32, relative error 1e-7, a tenth
    of what float32 logits have.
    """
    vocabulary = scores_RV.shape[1]
    bits = min(BLOCK_BITS, levels_of(vocabulary))
    if scores_RV.is_cuda:
        from emobench.inference.decoding.draw_kernel import draw_scores

        return DrawnIds(*draw_scores(scores_RV, uniform_RL, bits))
    # In place: new memory for all scores costs more than their exponentials.
    masses_RV = torch.softmax(scores_RV, -1, out=scores_RV)
    upper = levels_of(vocabulary) - bits
    sums_RK = block_sums(masses_RV, 2**bits).double()
    block_R, above_R = descend(sums_RK, uniform_RL[:, :upper])
    ids_RJ = (block_R[:, None] << bits) + torch.arange(2**bits, device=masses_RV.device)
    masses_RJ = masses_RV.gather(1, ids_RJ.clamp(max=vocabulary - 1)).double()
    inside_R, below_R = descend(masses_RJ.masked_fill_(ids_RJ >= vocabulary, 0.0), uniform_RL[:, upper:])
    return DrawnIds((block_R << bits) + inside_R, torch.minimum(above_R, below_R), sums_RK.isfinite().all())


def block_sums(masses_RV: Tensor, block: int) -> Tensor:
    """Return sums_RK of neighbouring ids, `block` of them at a time; the last block may be shorter."""
    whole = masses_RV.shape[1] // block * block
    sums_RK = masses_RV[:, :whole].unflatten(1, (-1, block)).sum(-1)
    if whole == masses_RV.shape[1]:
        return sums_RK
    return torch.cat((sums_RK, masses_RV[:, whole:].sum(-1, keepdim=True)), 1)


def descend(masses_RV: Tensor, uniform_RL: Tensor) -> tuple[Tensor, Tensor]:
    """Return one id for each row, drawn from unnormalised masses with ceil(log2 V) uniform numbers a row, and margins.

    A row's margin is the least distance of a number from its node's share p, divided by p (1 - p): what the log-odds of
    the two halves would have to move by. It is infinite where V is 1. Both are (R,).
    """
    levels = levels_of(masses_RV.shape[1])
    masses = [F.pad(masses_RV, (0, 2**levels - masses_RV.shape[1]))]
    for _ in range(levels - 1):
        masses.append(masses[-1][:, 0::2] + masses[-1][:, 1::2])
    node_R1 = torch.zeros(len(masses_RV), 1, dtype=torch.long, device=masses_RV.device)
    margin_R1 = torch.full_like(node_R1, torch.inf, dtype=masses_RV.dtype)
    for level in range(levels):
        mass = masses[levels - 1 - level]
        left_R1, right_R1 = mass.gather(1, 2 * node_R1), mass.gather(1, 2 * node_R1 + 1)
        # u < 1, so a right half without mass is never entered; nor is a left one, since 0 >= 0.
        whole_R1 = left_R1 + right_R1
        beyond_R1 = uniform_RL[:, level : level + 1] * whole_R1 - left_R1
        slope_R1 = (left_R1 * right_R1).clamp_min(LEAST) / whole_R1
        margin_R1 = torch.minimum(margin_R1, beyond_R1.abs() / slope_R1)
        node_R1 = 2 * node_R1 + (beyond_R1 >= 0).long()
    return node_R1[:, 0], margin_R1[:, 0]


class Allowed(LogitsProcessor):
    """Takes the mass of EOS at the first `suppressed_steps`, and always that of ids beyond the vocabulary."""

    def __init__(self, prompt_length: int, eos: tuple[int, ...], suppressed_steps: int, vocabulary: int | None) -> None:
        self.prompt_length = prompt_length
        self.eos = eos
        self.suppressed_steps = suppressed_steps
        self.vocabulary = vocabulary

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # type: ignore[override]
        # In place: `generate` gives a copy of the logits.
        if self.vocabulary is not None:
            scores[:, self.vocabulary :] = -torch.inf
        if self.eos and input_ids.shape[1] - self.prompt_length < self.suppressed_steps:
            for token in self.eos:  # a list as an index would wait for the device
                scores[:, token] = -torch.inf
        return scores


class Chooser(LogitsProcessor, ABC):
    """Chooses the next token of each row from scores that other processors (top-k, temperature, ...) have left.

    `finite` turns False where a row has no finite score, or one that is no number.
    """

    def __init__(self, device: torch.device) -> None:
        self.finite = torch.ones((), dtype=torch.bool, device=device)

    @abstractmethod
    def choose(self, ids_RT: Tensor, scores_AV: Tensor, rows_A: Tensor) -> Tensor:
        """Return ids_A for the rows that are still written, of all whose tokens so far are given."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # type: ignore[override]
        """Put the chosen token above all others, so that `generate`'s greedy decoding picks it."""
        rows_R = torch.arange(len(scores), device=scores.device)
        return scores.scatter_(1, self.choose(input_ids, scores, rows_R)[:, None], torch.inf)


class Largest(Chooser):
    """The token of the largest score."""

    def choose(self, ids_RT: Tensor, scores_AV: Tensor, rows_A: Tensor) -> Tensor:
        """See `Chooser`; the largest of a row with a NaN is NaN."""
        largest_A, ids_A = scores_AV.max(-1)
        self.finite &= largest_A.isfinite().all()
        return ids_A

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # type: ignore[override]
        """Change nothing: beams need the scores."""
        self.finite &= scores.amax(-1).isfinite().all()
        return scores


class TreeSampler(Chooser):
    """A token that is drawn by the rows' own random numbers.

    `alone(ids_1T, row)` gives the scores (1, V) of a row that is read by itself; without it, near ties stay.
    """

    def __init__(
        self, uniform_RSL: Tensor, prompt_length: int, alone: Callable[[Tensor, int], Tensor] | None = None
    ) -> None:
        super().__init__(uniform_RSL.device)
        self.uniform_RSL = uniform_RSL
        self.prompt_length = prompt_length
        self.alone = alone

    def choose(self, ids_RT: Tensor, scores_AV: Tensor, rows_A: Tensor) -> Tensor:
        """See `Chooser`."""
        uniform_AL = self.uniform_RSL[rows_A, ids_RT.shape[1] - self.prompt_length]
        drawn = draw(scores_AV, uniform_AL)
        self.finite &= drawn.finite
        if self.alone is not None:
            for place in (drawn.margin_R < NEAR).nonzero()[:, 0].tolist():
                row = int(rows_A[place])
                own_1V = self.alone(ids_RT[row : row + 1], row)
                drawn.ids_R[place] = draw(own_1V, uniform_AL[place : place + 1]).ids_R[0]
        return drawn.ids_R
