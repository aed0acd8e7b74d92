"""The walk down the tree of `ancestral.py` as one Triton kernel.

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


@triton.jit
def _descend(masses, index, uniform_ptr, LEVELS: tl.constexpr):
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
def descend_kernel(
    masses_ptr,  # (R, V), float32, rows masses_stride apart
    sums_ptr,  # (R, K), float32, rows sums_stride apart
    uniform_ptr,  # (R, UPPER + LOWER), float64, rows uniform_stride apart
    ids_ptr,  # (R,), int64
    margin_ptr,  # (R,), float64
    vocabulary,
    blocks,
    masses_stride,
    sums_stride,
    uniform_stride,
    UPPER: tl.constexpr,
    LOWER: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    uniform = uniform_ptr + row * uniform_stride
    block = tl.arange(0, 2**UPPER)
    sums = tl.load(sums_ptr + row * sums_stride + block, mask=block < blocks, other=0.0).to(tl.float64)
    node, above = _descend(sums, block, uniform, UPPER)
    inside = tl.arange(0, 2**LOWER)
    ids = node * 2**LOWER + inside
    masses = tl.load(masses_ptr + row * masses_stride + ids, mask=ids < vocabulary, other=0.0).to(tl.float64)
    leaf, below = _descend(masses, inside, uniform + UPPER, LOWER)
    tl.store(ids_ptr + row, (node * 2**LOWER + leaf).to(tl.int64))
    tl.store(margin_ptr + row, tl.minimum(above, below))


def descend_blocks(masses_RV: Tensor, sums_RK: Tensor, uniform_RL: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Return the drawn ids_R and their margins_R; blocks have 2^`bits` ids, and `sums_RK` are their sums."""
    ids_R = torch.empty(len(masses_RV), dtype=torch.int64, device=masses_RV.device)
    margin_R = torch.empty(len(masses_RV), dtype=torch.float64, device=masses_RV.device)
    with torch.cuda.device_of(masses_RV):
        descend_kernel[(len(masses_RV),)](
            masses_RV,
            sums_RK,
            uniform_RL,
            ids_R,
            margin_R,
            masses_RV.shape[1],
            sums_RK.shape[1],
            masses_RV.stride(0),
            sums_RK.stride(0),
            uniform_RL.stride(0),
            UPPER=uniform_RL.shape[1] - bits,
            LOWER=bits,
        )
    return ids_R, margin_R
