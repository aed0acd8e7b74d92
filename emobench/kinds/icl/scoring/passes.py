"""What every engine returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Pass(NamedTuple):
    """The outcome of scoring a batch; N pairs, D hidden width."""

    hidden_ND: Tensor
    """The head's input that predicts each pair."""
    tokens: int
    """Tokens that went through the model."""
    slots: int
    """The same with padding."""
