"""How the models of a run are loaded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Where a model is read from and computes, and in which precision."""

    device: str = "cpu"
    dtype: str = "float32"
    """Of the weights: float32, bfloat16 or float16."""
    offline: bool = False
    trust_remote_code: bool = False
    from_scratch: bool = False
    """Draw the weights at random, in the place of those of the model."""
