"""The sums of dX and dW: what is made for them beside themselves, and what they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from emobench.objectives import objective_loss, prepare_for
from emobench_objectives.mle import Mle

N, V, D, PADDING = 50, 61, 7, 3


class Calls(TorchDispatchMode):
    """The operators that were called, with the shapes of the tensors that they made."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and func._schema.returns[0].alias_info is None:
            self.made.append((func.overloadpacket.__name__, tuple(out.shape)))
        return out


@pytest.fixture
def memory_of_nan() -> Iterator[None]:
    """New memory that nobody has written to holds NaN."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


def loss_of(dtype: torch.dtype, labels_N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(0)
    hidden_ND = torch.randn(N, D, generator=rng).to(dtype).requires_grad_()
    head_VD = torch.randn(V + PADDING, D, generator=rng).to(dtype).requires_grad_()
    targets = prepare_for(Mle(), labels_N, vocabulary=V, dtype=dtype, chunk_bytes=4 * V * 16)
    return objective_loss(Mle(), hidden_ND, head_VD, None, targets, vocabulary=V).total, hidden_ND, head_VD


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_backward_makes_no_second_gradient(dtype: torch.dtype) -> None:
    """On a GPU, a half-precision dW beside a float32 one is all that the bound of memory has room for."""
    total, hidden_ND, head_VD = loss_of(dtype, torch.arange(N))
    with Calls() as calls:
        total.backward()
    shapes = [shape for _, shape in calls.made]
    assert shapes.count(hidden_ND.shape) == 1  # in the order of the inputs
    assert shapes.count(head_VD.shape) == (0 if dtype == torch.float32 else 1)


@pytest.mark.parametrize("ignored", [0, 37, N])
@pytest.mark.usefixtures("memory_of_nan")
def test_what_gets_no_gradient_has_zeros(ignored: int) -> None:
    labels_N = torch.arange(N)
    labels_N[:ignored] = -100
    total, hidden_ND, head_VD = loss_of(torch.float32, labels_N)
    total.backward()
    assert hidden_ND.grad is not None
    assert head_VD.grad is not None
    assert hidden_ND.grad[:ignored].count_nonzero() == 0
    assert head_VD.grad[V:].count_nonzero() == 0
    assert bool(head_VD.grad.isfinite().all())
    assert (head_VD.grad[:V].count_nonzero() > 0) == (ignored < N)
