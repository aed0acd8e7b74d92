"""The dtypes and buffers of the engine, and products of half-precision matrices with a float32 result.

Legend: A and B rows of the two factors, S rows of a slice of B, D width, C tokens of a chunk, V vocabulary, P padded
vocabulary, X anything.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from functools import cache

import torch
from torch import Tensor

from emobench.models.onednn import has_onednn, product, takes

_SLICE = 4096  # rows of B
_LARGE = 4 << 20  # entries of B from which on oneDNN, slice by slice, takes less time than torch


def compute_dtype(like: Tensor, weight_VD: Tensor) -> torch.dtype:
    """Return the dtype of the products on the device of `like`: autocast's if it is enabled, else the head's."""
    kind = like.device.type
    if torch.is_autocast_enabled(kind) and weight_VD.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return weight_VD.dtype


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of statistics, losses and the sums of gradients."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def concatenated(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return each name's tensors as one."""
    whole = {}
    for name in parts[0]:
        whole[name] = torch.cat([part[name] for part in parts])
    return whole


def padded(vocabulary: int, multiple: int) -> int:
    """Return the length of a row, rounded up to a multiple of `multiple`."""
    return -(-vocabulary // multiple) * multiple


def row_buffer(like: Tensor, rows: int, vocabulary: int, dtype: torch.dtype, multiple: int) -> Tensor:
    """Return uninitialised memory, (rows, vocabulary). Each row begins at a multiple of `multiple` entries."""
    buffer = like.new_empty(rows, padded(vocabulary, multiple), dtype=dtype)
    # Some matrix products read entries in pairs and past the end of a row: the padding must not contain NaN.
    buffer[:, vocabulary:] = 0
    return buffer[:, :vocabulary]


def whole_rows(rows_XV: Tensor) -> Tensor:
    """Return rows of a `row_buffer` with their padding, (X, P)."""
    row = rows_XV.stride(0)
    return rows_XV.as_strided((len(rows_XV), row), (row, 1), rows_XV.storage_offset())


def padded_head(weight_VX: Tensor, vocabulary: int, multiple: int, dtype: torch.dtype) -> Tensor:
    """Return the rows of a head, or the entries of its bias, up to a multiple of `multiple`, (P, X).

    Rows after the vocabulary are the head's own padding, or 0. On a GPU, products with GPT-2's 50,257 rows take seven
    times as long as with 50,304 (measured on an H200 in bfloat16: 95 and 642 TFLOP/s).
    """
    rows = padded(vocabulary, multiple)
    if rows <= len(weight_VX):
        return weight_VX[:rows].to(dtype)
    whole_PX = weight_VX.new_empty(rows, *weight_VX.shape[1:], dtype=dtype)
    whole_PX[:vocabulary] = weight_VX[:vocabulary]
    whole_PX[vocabulary:] = 0
    return whole_PX


def multiply_wide(left_AD: Tensor, right_BD: Tensor, out_AB: Tensor) -> None:
    """Write left @ right.T in the dtype of `out_AB`. Rounding a logit of 20 to bfloat16 would change q by 3 %."""
    if left_AD.is_cuda and left_AD.dtype != out_AB.dtype:
        torch.mm(left_AD, right_BD.T, out_dtype=out_AB.dtype, out=out_AB)
        return
    left_AD = left_AD.to(out_AB.dtype)
    by_onednn = right_BD.numel() >= _LARGE and right_BD.is_contiguous() and has_onednn() and takes(left_AD)
    if right_BD.dtype == out_AB.dtype and not by_onednn:
        torch.mm(left_AD, right_BD.T, out=out_AB)
        return
    # Only CUDA multiplies half precision into float32; elsewhere, slices of rows are converted. oneDNN returns new
    # memory, of which a slice stays in the cache.
    for out_AS, right_SD in zip(out_AB.split(_SLICE, dim=1), right_BD.split(_SLICE), strict=True):
        right_SD = right_SD.to(out_AB.dtype)
        if by_onednn:
            out_AS.copy_(product(left_AD, right_SD))
        else:
            torch.mm(left_AD, right_SD.T, out=out_AS)


def add_product_wide(sum_VD: Tensor, left_CV: Tensor, right_CD: Tensor, *, first: bool = False) -> None:
    """Add left.T @ right to a float32 sum, or on a GPU to one of their own dtype, which is rounded each time.

    The `first` product overwrites `sum_VD`. `left_CV` is float32 or has the dtype of `right_CD`.
    """
    # addmm(out=), because torch's FLOP counter does not count addmm_.
    beta = 0 if first else 1
    if left_CV.dtype == sum_VD.dtype:
        torch.addmm(sum_VD, left_CV.T, right_CD.to(sum_VD.dtype), beta=beta, out=sum_VD)
    elif left_CV.is_cuda:
        torch.addmm(sum_VD, left_CV.T, right_CD, out_dtype=sum_VD.dtype, beta=beta, out=sum_VD)
    else:
        torch.addmm(sum_VD, left_CV.T.to(sum_VD.dtype), right_CD.to(sum_VD.dtype), beta=beta, out=sum_VD)


@cache
def has_triton() -> bool:
    """Return whether GPU kernels can be compiled."""
    return importlib.util.find_spec("triton") is not None
