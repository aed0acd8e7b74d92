"""A micro-batch without targets: loss 0 and gradients of 0, so that all processes go on together.

V = 4,099 takes the path of long rows on a CPU. N = 6 tokens, D = 8.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from emobench.objectives import ModelObjective, objective_loss
from emobench.registry import load_objective, objective_names
from emobench.testing.subject import CheckedObjective

V, D = 4099, 8
FURTHER = ["0.5*emo + 0.5*mle", "linear(1, 0)*brier + linear(0, 1)*tailr", "0.5*demd-dense + 0.5*emo"]
NAMES = sorted(name for name in objective_names() if not isinstance(load_objective(name).objective, ModelObjective))
LABELS = {"no token": [], "only -100": [-100] * 6}
names = pytest.mark.parametrize("name", [*NAMES, *FURTHER])
interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="needs Triton's interpreter")
labels = pytest.mark.parametrize("labels_N", [torch.tensor(v, dtype=torch.long) for v in LABELS.values()], ids=LABELS)


def inputs(tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    shapes = ((tokens, D), (V, D), (V,))
    return tuple(torch.randn(shape, generator=rng).to(dtype).requires_grad_() for shape in shapes)  # type: ignore[return-value]


def ready(name: str) -> tuple[Any, dict[str, Tensor]]:
    """Return an objective after `setup`, and its side data of six tokens."""
    subject = CheckedObjective(load_objective(name).objective, tokens=6, width=D, vocabulary=V)
    return subject.ready, subject.side


@names
@labels
@pytest.mark.parametrize("impl", ["torch", pytest.param("triton", marks=interpreted), "reference"])
def test_the_engine(name: str, labels_N: Tensor, impl: str) -> None:
    objective, side = ready(name)
    dtype = torch.float32 if impl == "triton" else torch.float64
    tensors = inputs(len(labels_N), dtype)
    some = objective_loss(objective, *inputs(6, dtype), torch.tensor([3, -100, 7, 3, 8, 9]), side=side, impl=impl)
    side = {key: value[: len(labels_N)] for key, value in side.items()}
    weights_N = torch.ones(len(labels_N))
    for more in ({}, {"denominator": 5}, {"weights_N": weights_N}):
        found = objective_loss(objective, *tensors, labels_N, side=side, impl=impl, **more)  # type: ignore[arg-type]
        found.total.backward()
        assert float(found.total.detach()) == float(found.loss_sum) == found.count == 0
        assert found.losses_N.tolist() == [0.0] * len(labels_N)
        # Processes add their parts up: all must have the same.
        assert found.parts.keys() - {"example_weight"} == some.parts.keys()
        assert all(float(value) == 0 for value in found.parts.values())
        for tensor in tensors:
            assert tensor.grad is not None
            assert torch.equal(tensor.grad, torch.zeros_like(tensor))
