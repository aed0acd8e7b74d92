"""Two torch modes: one records new tensors, the other fixes the constants of a loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_DETACH = (Tensor.detach, Tensor.detach_, torch.detach)
_SWITCHES = (torch._C._set_grad_enabled,)
"""Functions that no_grad calls. They are always executed: gradients would otherwise stay disabled."""


class NewTensors(TorchDispatchMode):
    """Records the largest tensor with new memory (not views or in-place results), except for some shapes."""

    def __init__(self, except_shapes: set[tuple[int, ...]]) -> None:
        super().__init__()
        self.except_shapes = except_shapes
        self.largest: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            if isinstance(result, Tensor) and declared.alias_info is None:
                shape = tuple(result.shape)
                if shape not in self.except_shapes and result.numel() > torch.Size(self.largest).numel():
                    self.largest = shape
        return out


class HeldConstants(TorchFunctionMode):
    """Gives a function the same constants in each call: the values that it detached, or computed under no_grad, in the
    first call.

    Autograd treats these parts as constants. Finite differences must also hold them constant to give the same gradient.
    Call `rewind` before each repetition.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Any] = []
        self._next: int | None = None

    def rewind(self) -> None:
        """Return the stored constants from now on, starting with the first."""
        self._next = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SWITCHES or (torch.is_grad_enabled() and func not in _DETACH):
            return func(*args, **(kwargs or {}))
        if self._next is not None and self._next < len(self._held):
            self._next += 1
            return self._held[self._next - 1]
        out = func(*args, **(kwargs or {}))
        self._held.append(out)
        return out
