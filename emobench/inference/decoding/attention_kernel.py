"""Attention of one new position to all before it as one Triton kernel.

Kernels for many queries work on 64 of them at a time, for one: measured with GPT-2's shape on an H200, they were two
thirds of a step. Here a program reads the keys and values of one row and head once, for all queries that share them.

Legend: R rows, H heads of keys and values, G queries of each, T positions, D width of a head, E width of a value.
"""

# A type checker does not understand Triton's language.
# pyright: reportOperatorIssue=false, reportPossiblyUnboundVariable=false, reportIndexIssue=false
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["positions", "seen_stride"])
def attend_kernel(
    query_ptr,  # (R, H G, D), rows and heads of queries contiguous
    key_ptr,  # (R, H, T, D), the last contiguous
    value_ptr,  # (R, H, T, E), the last contiguous
    seen_ptr,  # (R, T), bool, rows seen_stride apart; any pointer unless HAS_SEEN
    out_ptr,  # (R, H G, E), contiguous
    positions,
    scaling,
    key_row_stride,
    key_head_stride,
    key_stride,
    value_row_stride,
    value_head_stride,
    value_stride,
    seen_stride,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    HAS_SEEN: tl.constexpr,
    BLOCK_G: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
    HALF: tl.constexpr,
):
    row, head = (tl.program_id(0) // HEADS).to(tl.int64), tl.program_id(0) % HEADS
    query, width, value_width = tl.arange(0, BLOCK_G), tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
    is_query, is_width, is_value = query[:, None] < GROUP, width[None, :] < WIDTH, value_width[None, :] < VALUE_WIDTH
    queries = (row * HEADS + head) * GROUP + query[:, None]
    query_GD = tl.load(query_ptr + queries * WIDTH + width[None, :], mask=is_query & is_width, other=0.0)
    keys = key_ptr + row * key_row_stride + head * key_head_stride + width[None, :]
    values = value_ptr + row * value_row_stride + head * value_head_stride + value_width[None, :]
    largest_G = tl.full((BLOCK_G,), -1e30, tl.float32)  # finite: a block may have no position that is seen
    total_G = tl.zeros((BLOCK_G,), tl.float32)
    out_GE = tl.zeros((BLOCK_G, BLOCK_E), tl.float32)
    for start in range(0, positions, BLOCK_T):
        position = start + tl.arange(0, BLOCK_T)
        seen_T = position < positions
        if HAS_SEEN:
            seen_T = tl.load(seen_ptr + row * seen_stride + position, mask=seen_T, other=0) != 0
        place, is_seen = position.to(tl.int64)[:, None], seen_T[:, None]
        key_TD = tl.load(keys + place * key_stride, mask=is_seen & is_width, other=0.0)
        value_TE = tl.load(values + place * value_stride, mask=is_seen & is_value, other=0.0)
        # float32 has no matrix unit, and half precision has one for 16 rows or more.
        if HALF:
            score_GT = tl.dot(query_GD, tl.trans(key_TD)) * scaling
        else:
            score_GT = tl.sum(query_GD[:, None, :] * key_TD[None, :, :], axis=2) * scaling
        score_GT = tl.where(seen_T[None, :], score_GT, -1e30)
        before_G, largest_G = largest_G, tl.maximum(largest_G, tl.max(score_GT, axis=1))
        share_GT = tl.where(seen_T[None, :], tl.exp(score_GT - largest_G[:, None]), 0.0)
        shrink_G = tl.exp(before_G - largest_G)
        total_G = total_G * shrink_G + tl.sum(share_GT, axis=1)
        out_GE *= shrink_G[:, None]
        if HALF:
            out_GE += tl.dot(share_GT.to(value_TE.dtype), value_TE)
        else:
            out_GE += tl.sum(share_GT[:, :, None] * value_TE[None, :, :], axis=1)
    out_GE = out_GE / total_G[:, None]
    places = out_ptr + queries * VALUE_WIDTH + value_width[None, :]
    tl.store(places, out_GE.to(out_ptr.dtype.element_ty), mask=is_query & is_value)


def fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Say whether the registers of a program hold the queries of a head, (R, H G, 1, D), with some positions."""
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return False
    half, group = query.dtype != torch.float32, query.shape[1] // key.shape[1]
    blocks, _ = constants_of(
        heads=key.shape[1], group=group, width=key.shape[-1], value_width=value.shape[-1], half=half
    )
    return blocks["BLOCK_G"] * max(blocks["BLOCK_D"], blocks["BLOCK_E"]) <= (4096 if half else 1024)


def constants_of(*, heads: int, group: int, width: int, value_width: int, half: bool) -> tuple[dict[str, int], int]:
    """Return the kernel's constants and warps: as many positions at a time as the registers hold."""
    least = 16 if half else 1  # of a matrix unit
    block_g, block_d, block_e = (max(least, int(triton.next_power_of_2(size))) for size in (group, width, value_width))
    widest = block_g * max(block_d, block_e)
    if half:
        block_t, warps = (16, 1) if widest <= 1024 else (32, 2)
    else:
        block_t = max(16, 4096 // widest)
        warps = min(8, max(1, widest * block_t // 2048))
    blocks = {"BLOCK_G": block_g, "BLOCK_T": block_t, "BLOCK_D": block_d, "BLOCK_E": block_e}
    sizes = {"HEADS": heads, "GROUP": group, "WIDTH": width, "VALUE_WIDTH": value_width}
    return {**sizes, **blocks, "HALF": half}, warps


def attend_once(
    query_RHD: Tensor, key_RHTD: Tensor, value_RHTE: Tensor, seen_RT: Tensor | None, scaling: float
) -> Tensor:
    """Return attention's output of one query a row, (R, H G, E); `seen_RT` says which positions are attended to.

    Sums are float32. Each row has to see a position.
    """
    rows, heads, positions, width = key_RHTD.shape
    group, value_width = query_RHD.shape[1] // heads, value_RHTE.shape[-1]
    query_RHD = query_RHD.contiguous()
    if key_RHTD.stride(-1) != 1:
        key_RHTD = key_RHTD.contiguous()
    if value_RHTE.stride(-1) != 1:
        value_RHTE = value_RHTE.contiguous()
    if seen_RT is not None:
        seen_RT = seen_RT.expand(rows, -1)
        if seen_RT.stride(-1) != 1:
            seen_RT = seen_RT.contiguous()
    out_RHE = query_RHD.new_empty(rows, heads * group, value_width)
    half = query_RHD.dtype != torch.float32
    constants, warps = constants_of(heads=heads, group=group, width=width, value_width=value_width, half=half)
    with torch.cuda.device_of(query_RHD):
        attend_kernel[(rows * heads,)](
            query_RHD,
            key_RHTD,
            value_RHTE,
            query_RHD if seen_RT is None else seen_RT.view(torch.uint8),
            out_RHE,
            positions,
            scaling,
            *key_RHTD.stride()[:3],
            *value_RHTE.stride()[:3],
            0 if seen_RT is None else seen_RT.stride(0),
            HAS_SEEN=seen_RT is not None,
            **constants,
            num_warps=warps,
        )
    return out_RHE
