"""The draw of `ancestral.py` as two Triton kernels: the sums of blocks of masses, and the walk down the tree.

Scores are read once, in the dtype of the model, and no masses are stored.

Legend: R rows, V vocabulary, L levels of the tree, K blocks of the vocabulary.
"""

# A type checker does not understand Triton's language.
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false, reportIndexIssue=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE = 32
"""Blocks of the vocabulary that a program sums at once."""


@triton.jit
def _descend(masses, index, uniform_ptr, LEVELS: tl.constexpr):
    """Return one of 2**LEVELS places, drawn by halves with a uniform number each, and the smallest relative margin."""
    node = 0
    margin = tl.full((), float("inf"), tl.float64)
    for level in tl.static_range(LEVELS):
        at = index >> (LEVELS - 1 - level)
        left = tl.sum(tl.where(at == 2 * node, masses, 0.0))
        right = tl.sum(tl.where(at == 2 * node + 1, masses, 0.0))
        whole = left + right
        beyond = tl.load(uniform_ptr + level) * whole - left
        margin = tl.minimum(margin, tl.abs(beyond) * whole / tl.maximum(left * right, 1e-300))
        node = 2 * node + tl.where(beyond >= 0, 1, 0)
    return node, margin


@triton.jit
def sum_blocks_kernel(
    scores_ptr,  # (R, V), rows scores_stride apart
    tops_ptr,  # (R, K), float32: the largest score of each block
    sums_ptr,  # (R, K), float32: the sum of exp(score - largest)
    vocabulary,
    blocks,
    scores_stride,
    BITS: tl.constexpr,
    TILE: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * TILE + tl.arange(0, TILE)
    ids = block[:, None] * 2**BITS + tl.arange(0, 2**BITS)[None, :]
    places = scores_ptr + row * scores_stride + ids
    if (tl.program_id(1) + 1) * TILE * 2**BITS <= vocabulary:
        scores = tl.load(places).to(tl.float32)  # with a mask, each load would take a single score
    else:
        scores = tl.load(places, mask=ids < vocabulary, other=float("-inf")).to(tl.float32)
    top = tl.max(scores, axis=1)
    base = tl.where(top == float("-inf"), 0.0, top)
    out = row * blocks + block
    tl.store(tops_ptr + out, top, mask=block < blocks)
    tl.store(sums_ptr + out, tl.sum(tl.exp(scores - base[:, None]), axis=1), mask=block < blocks)


@triton.jit
def descend_kernel(
    scores_ptr,  # (R, V), rows scores_stride apart
    tops_ptr,  # (R, K), float32
    sums_ptr,  # (R, K), float32
    uniform_ptr,  # (R, UPPER + LOWER), float64, rows uniform_stride apart
    ids_ptr,  # (R,), int64
    margin_ptr,  # (R,), float64
    finite_ptr,  # (R,), bool
    vocabulary,
    blocks,
    scores_stride,
    uniform_stride,
    UPPER: tl.constexpr,
    LOWER: tl.constexpr,
):
    """Draw a token of each row: first its block of 2**LOWER tokens by the blocks' sums, then a token of that block."""
    row = tl.program_id(0).to(tl.int64)
    uniform = uniform_ptr + row * uniform_stride
    block = tl.arange(0, 2**UPPER)
    tops = tl.load(tops_ptr + row * blocks + block, mask=block < blocks, other=float("-inf"))
    top = tl.max(tops, axis=0)
    base = tl.where(top == float("-inf"), 0.0, top)
    sums = tl.load(sums_ptr + row * blocks + block, mask=block < blocks, other=0.0) * tl.exp(tops - base)
    whole = tl.sum(sums, axis=0)
    node, above = _descend(sums.to(tl.float64), block, uniform, UPPER)
    inside = tl.arange(0, 2**LOWER)
    ids = node * 2**LOWER + inside
    scores = tl.load(scores_ptr + row * scores_stride + ids, mask=ids < vocabulary, other=float("-inf"))
    masses = tl.exp(scores.to(tl.float32) - base).to(tl.float64)
    leaf, below = _descend(masses, inside, uniform + UPPER, LOWER)
    tl.store(ids_ptr + row, (node * 2**LOWER + leaf).to(tl.int64))
    tl.store(margin_ptr + row, tl.minimum(above, below))
    tl.store(finite_ptr + row, ((whole > 0) & (whole < float("inf"))).to(tl.int8))  # neither is true of NaN


def draw_scores(scores_RV: Tensor, uniform_RL: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `ancestral.draw` does; blocks have 2^`bits` ids."""
    (rows, vocabulary), device = scores_RV.shape, scores_RV.device
    blocks = -(-vocabulary // 2**bits)
    if scores_RV.stride(1) != 1:
        scores_RV = scores_RV.contiguous()
    tops_RK, sums_RK = torch.empty(2, rows, blocks, dtype=torch.float32, device=device)
    ids_R = torch.empty(rows, dtype=torch.int64, device=device)
    margin_R = torch.empty(rows, dtype=torch.float64, device=device)
    finite_R = torch.empty(rows, dtype=torch.bool, device=device)
    with torch.cuda.device_of(scores_RV):
        sum_blocks_kernel[(rows, -(-blocks // TILE))](
            scores_RV, tops_RK, sums_RK, vocabulary, blocks, scores_RV.stride(0), BITS=bits, TILE=TILE
        )
        descend_kernel[(rows,)](
            scores_RV,
            tops_RK,
            sums_RK,
            uniform_RL,
            ids_R,
            margin_R,
            finite_R.view(torch.int8),
            vocabulary,
            blocks,
            scores_RV.stride(0),
            uniform_RL.stride(0),
            UPPER=uniform_RL.shape[1] - bits,
            LOWER=bits,
        )
    return ids_R, margin_R, finite_R.all()
