"""A denominator divides the loss and its gradients as a division afterwards does, without a pass over dW."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from emobench.models.head import LogitMap
from emobench.objectives import CostEmbedding, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

N, V, D = 40, 31, 8
ERROR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.float16: 2e-3}
dtypes = pytest.mark.parametrize("dtype", ERROR, ids=str)


def leaves_of(dtype: torch.dtype) -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = ((N, D), (V + 3, D), (V + 3,))
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def run(dtype: torch.dtype, *, afterwards: float | None = None, factor: float = 1.0, **options: Any) -> list[Tensor]:
    """Return the loss, undivided and divided, and its gradients times `factor`, for EMO with bias and padding rows."""
    objective, leaves = Emo(), leaves_of(dtype)
    objective.use_cost(CostEmbedding(torch.randn(V, 5, generator=torch.Generator().manual_seed(1)).double()))
    labels_N = torch.arange(N) * 7 % V
    labels_N[::7] = -100
    found = objective_loss(objective, *leaves, labels_N, vocabulary=V, logit_map=LogitMap(cap=9.0), **options)
    loss = found.total if afterwards is None else found.total / afterwards
    (loss * factor).backward()
    return [found.loss_sum, loss.detach(), *(leaf.grad for leaf in leaves)]  # type: ignore[list-item]


class Scaled(TorchDispatchMode):
    """The shapes of what is multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mul", "mul_"):
            self.shapes.add(tuple(args[0].shape))
        return func(*args, **(kwargs or {}))


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("denominator", [1234.5, torch.tensor(1234)], ids=["number", "tensor"])
@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 4 * V * 9}, {"impl": "reference"}], ids=str)
@dtypes
def test_it_is_a_division_afterwards(
    dtype: torch.dtype, options: dict[str, Any], denominator: Tensor | float, factor: float
) -> None:
    found = run(dtype, denominator=denominator, factor=factor, **options)
    expected = run(dtype, afterwards=float(denominator), factor=factor, **options)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert error(one, other) <= ERROR[dtype]


@dtypes
def test_small_gradients_are_kept_for_a_loss_scale(dtype: torch.dtype) -> None:
    """A batch of a million tokens: in float16, most gradients divided by it would be 0."""
    found = run(dtype, denominator=2.0**20, factor=2.0**16)
    exact = run(torch.float64, afterwards=2.0**4)
    for one, other in zip(found[2:], exact[2:], strict=True):
        assert error(one, other) <= 2 * ERROR[dtype]


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_gradient_of_the_head_is_passed_over_only_for_a_factor(factor: float) -> None:
    hidden_ND, head_VD, _ = leaves_of(torch.float32)
    loss = objective_loss(Mle(), hidden_ND, head_VD, None, torch.arange(N) % V, denominator=N).total * factor
    with Scaled() as calls:
        loss.backward()
    assert (tuple(head_VD.shape) in calls.shapes) == (factor != 1)
