"""Weights of tokens and a denominator: loss and gradients are those of the weighted sum, divided, in every path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import emobench
from emobench.models.head import LogitMap
from emobench.objectives import CostEmbedding, LossResult, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

N, V, D = 40, 31, 8
ERROR = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.float16: 2e-3}


class Squares(emobench.LogitsObjective):
    """The sum of squares of the probabilities."""

    def loss(self, logits_NV: Tensor, targets_N: Tensor, side: Mapping[str, Tensor]) -> Tensor:
        return logits_NV.softmax(-1).square().sum(-1)


class Confidence(emobench.StatisticsObjective):
    """Without slopes in closed form."""

    needs = frozenset({"entropy"})

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        return s.entropy.square() - s.log_prob


OBJECTIVES = {"mle": Mle, "emo": Emo, "squares": Squares, "confidence": Confidence}


def random(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float64) -> list[Tensor]:
    rng = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def made(name: str) -> Any:
    objective = OBJECTIVES[name]()
    if isinstance(objective, Emo):
        objective.use_cost(CostEmbedding(torch.randn(V, 5, generator=torch.Generator().manual_seed(1)).double()))
    return objective


def computed(
    name: str, hidden_ND: Tensor, labels_N: Tensor, weights_N: Tensor | None, **options: Any
) -> tuple[LossResult, Tensor, Tensor]:
    (head_VD,) = random((V, D))
    found = objective_loss(made(name), hidden_ND, head_VD, None, labels_N, weights_N=weights_N, **options)
    return found, *torch.autograd.grad(found.total, (hidden_ND, head_VD))  # type: ignore[return-value]


def tokens() -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(2)
    labels_N = torch.randint(V, (N,), generator=rng)
    labels_N[::7] = -100
    return random((N, D))[0], labels_N, torch.randint(4, (N,), generator=rng).double()


@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 8 * V * 6}, {"impl": "reference"}], ids=str)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_weight_of_k_is_k_copies_of_the_token(name: str, options: dict[str, Any]) -> None:
    hidden_ND, labels_N, weights_N = tokens()
    options = {"logit_map": LogitMap(cap=3.0), **options}
    found, by_hidden, by_head = computed(name, hidden_ND, labels_N, weights_N, **options)
    of = torch.arange(N).repeat_interleave(weights_N.long())
    many, by_copies, expected_head = computed(name, hidden_ND[of], labels_N[of], None, **options)
    expected_hidden = torch.zeros_like(by_hidden).index_add(0, of, by_copies)
    torch.testing.assert_close(found.total, many.total, rtol=1e-10, atol=0)
    torch.testing.assert_close(by_hidden, expected_hidden, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(by_head, expected_head, rtol=1e-9, atol=1e-12)
    assert (float(found.weight), found.count) == (many.count, int((labels_N != -100).sum()))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_weights_leave_losses_and_logged_parts_of_tokens_as_they_are(name: str) -> None:
    hidden_ND, labels_N, weights_N = tokens()
    plain, *_ = computed(name, hidden_ND, labels_N, None)
    found, *_ = computed(name, hidden_ND, labels_N, weights_N + 0.5)
    assert torch.equal(found.losses_N, plain.losses_N)
    assert found.parts.keys() - plain.parts.keys() == {"example_weight"}
    for part, value in plain.parts.items():
        assert float(found.parts[part]) == pytest.approx(float(value), rel=1e-9), part


def divided(
    dtype: torch.dtype, *, afterwards: float | None = None, factor: float = 1.0, **options: Any
) -> list[Tensor]:
    """Return the loss, undivided and divided, and its gradients times `factor`, for EMO with bias and padding rows."""
    leaves = random((N, D), (V + 3, D), (V + 3,), dtype=dtype)
    _, labels_N, _ = tokens()
    found = objective_loss(made("emo"), *leaves, labels_N, vocabulary=V, logit_map=LogitMap(cap=9.0), **options)
    loss = found.total if afterwards is None else found.total / afterwards
    (loss * factor).backward()
    return [found.loss_sum, loss.detach(), *(leaf.grad for leaf in leaves)]  # type: ignore[list-item]


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("factor", [1.0, 3.0])
@pytest.mark.parametrize("denominator", [1234.5, torch.tensor(1234)], ids=["number", "tensor"])
@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 4 * V * 9}, {"impl": "reference"}], ids=str)
@pytest.mark.parametrize("dtype", ERROR, ids=str)
def test_a_denominator_is_a_division_afterwards(
    dtype: torch.dtype, options: dict[str, Any], denominator: Tensor | float, factor: float
) -> None:
    found = divided(dtype, denominator=denominator, factor=factor, **options)
    expected = divided(dtype, afterwards=float(denominator), factor=factor, **options)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert error(one, other) <= ERROR[dtype]


@pytest.mark.parametrize("dtype", ERROR, ids=str)
def test_small_gradients_are_kept_for_a_loss_scale(dtype: torch.dtype) -> None:
    """A batch of a million tokens: in float16, most gradients divided by it would be 0."""
    found = divided(dtype, denominator=2.0**20, factor=2.0**16)
    exact = divided(torch.float64, afterwards=2.0**4)
    for one, other in zip(found[2:], exact[2:], strict=True):
        assert error(one, other) <= 2 * ERROR[dtype]


class Scaled(TorchDispatchMode):
    """The shapes of tensors that are multiplied."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in ("mul", "mul_"):
            self.shapes.add(tuple(args[0].shape))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_the_gradient_of_the_head_is_passed_over_only_for_a_factor(factor: float) -> None:
    hidden_ND, head_VD = random((N, D), (V + 3, D), dtype=torch.float32)
    loss = objective_loss(Mle(), hidden_ND, head_VD, None, torch.arange(N) % V, denominator=N).total * factor
    with Scaled() as calls:
        loss.backward()
    assert (tuple(head_VD.shape) in calls.shapes) == (factor != 1)
