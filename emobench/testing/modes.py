"""Two ways to watch torch at work: what memory is made, and what a loss takes for a constant."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_DETACH = (Tensor.detach, Tensor.detach_, torch.detach)
_SWITCHES = (torch._C._set_grad_enabled,)
"""What no_grad itself calls; never held, or gradients would stay off."""


class MadeTensors(TorchDispatchMode):
    """Notes the largest tensor that owns new memory (views and in-place results do not), but for some shapes."""

    def __init__(self, apart: set[tuple[int, ...]]) -> None:
        super().__init__()
        self.apart = apart
        self.largest: tuple[int, ...] = ()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            if isinstance(result, Tensor) and declared.alias_info is None:
                shape = tuple(result.shape)
                if shape not in self.apart and result.numel() > torch.Size(self.largest).numel():
                    self.largest = shape
        return out


class HeldConstants(TorchFunctionMode):
    """Gives a function the same constants each time: what it detached, or made under no_grad, the first time.

    The gradient of a loss with a stop-gradient is that of the loss with these parts held; so finite differences of
    the held loss are what autograd should give. Call `rewind` before each repetition.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: list[Any] = []
        self._next: int | None = None

    def rewind(self) -> None:
        """Give the held constants from here on, from the first."""
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
