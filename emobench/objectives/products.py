"""Matrix products of half-precision rows whose result keeps single precision.

Legend: A and B rows of the two sides, S rows of a slice of B, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

_SLICE = 4096  # rows of B


def multiply_wide(left_AD: Tensor, right_BD: Tensor, out_AB: Tensor) -> None:
    """Write left @ right.T in the dtype of `out_AB`: a logit of 20 rounded to bfloat16 would move q by 3 %."""
    if left_AD.dtype == out_AB.dtype:
        torch.mm(left_AD, right_BD.T, out=out_AB)
    elif left_AD.is_cuda:
        torch.mm(left_AD, right_BD.T, out_dtype=out_AB.dtype, out=out_AB)
    else:
        # Only CUDA multiplies half precision into float32; elsewhere a slice of rows at a time is made wide.
        left_AD = left_AD.to(out_AB.dtype)
        for out_AS, right_SD in zip(out_AB.split(_SLICE, dim=1), right_BD.split(_SLICE), strict=True):
            torch.mm(left_AD, right_SD.to(out_AB.dtype).T, out=out_AS)
