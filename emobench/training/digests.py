"""Digests of a model's weights, by which equal ones are found: a training that moved nothing, and seeds that agree."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

PRECISIONS = ("float32", "bfloat16", "float16")
"""The data types of weights in which a model is evaluated."""


def weight_digests(model: Any) -> dict[str, str]:
    """Return the sha256 of a model's weights after rounding to each of `PRECISIONS`.

    Two models of one class have the same digest if all their weights are then equal, bit by bit.
    """
    digests = {precision: hashlib.sha256() for precision in PRECISIONS}
    for name, weight in sorted(model.named_parameters()):
        for precision, digest in digests.items():
            rounded = weight.detach().to(getattr(torch, precision)).cpu().contiguous()
            digest.update(f"{name} {tuple(rounded.shape)}".encode())
            digest.update(rounded.flatten().view(torch.uint8).numpy())
    return {precision: digest.hexdigest() for precision, digest in digests.items()}
