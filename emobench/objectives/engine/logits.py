"""The dtypes of the engine, and the buffers for the logits and the cost rows of a chunk.

Legend: C tokens of a chunk, U distinct targets, V vocabulary, D hidden width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def compute_dtype(like: Tensor, weight_VD: Tensor) -> torch.dtype:
    """Return the dtype of the products on the device of `like`: autocast's if it is enabled, else the head's."""
    kind = like.device.type
    if torch.is_autocast_enabled(kind) and weight_VD.dtype != torch.float64:
        return torch.get_autocast_dtype(kind)
    return weight_VD.dtype


def accumulator_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of statistics, losses and the sums of gradients."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def padded(vocabulary: int, multiple: int) -> int:
    """Return the length of a row, rounded up to a multiple of `multiple`."""
    return -(-vocabulary // multiple) * multiple


def row_buffer(like: Tensor, rows: int, vocabulary: int, dtype: torch.dtype, multiple: int) -> Tensor:
    """Return uninitialised memory, (rows, vocabulary). Each row begins at a multiple of `multiple` entries."""
    buffer = like.new_empty(rows, padded(vocabulary, multiple), dtype=dtype)
    # Some matrix products read entries in pairs and past the end of a row: the padding must not contain NaN.
    buffer[:, vocabulary:] = 0
    return buffer[:, :vocabulary]
