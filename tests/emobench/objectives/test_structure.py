"""What the chunked engine computes and holds, counted without a clock: products, and the largest tensors made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from emobench.objectives import CostEmbedding, Targets, objective_loss, prepare_for
from emobench.objectives.engine.products import padded
from emobench.objectives.engine.torch_rows import TorchRows
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

# 200 tokens of 60 distinct targets in chunks of 32 rows: 7 chunks for MLE, more for EMO, which holds cost rows as well.
# V is many times D and N, so that the largest tensors are the vocabulary-sized ones.
N, V, D, ROWS = 200, 1009, 16, 32


def make(objective: Any, *, head: bool = True, hidden: bool = True) -> tuple[Targets, Callable[[], torch.Tensor]]:
    rng = torch.Generator().manual_seed(0)
    labels_N = torch.randint(60, (N,), generator=rng)
    head_VD = torch.randn(V, D, generator=rng).requires_grad_(head)
    hidden_ND = torch.randn(N, D, generator=rng).requires_grad_(hidden)
    if isinstance(objective, Emo):
        objective.use_cost(CostEmbedding(torch.randn(V, D, generator=rng)))
    targets = prepare_for(objective, labels_N, vocabulary=V, chunk_bytes=4 * V * ROWS)
    return targets, lambda: objective_loss(objective, hidden_ND, head_VD, None, targets).total


class MadeTensors(TorchDispatchMode):
    """Collects the shapes of all tensors that own new memory (views and in-place results do not)."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        results = out if isinstance(out, (tuple, list)) else (out,)
        for result, declared in zip(results, func._schema.returns, strict=False):
            if isinstance(result, torch.Tensor) and declared.alias_info is None:
                self.shapes.append(tuple(result.shape))
        return out


def flops(run: Callable[[], torch.Tensor]) -> int:
    with FlopCounterMode(display=False) as counter:
        total = run()
        if total.requires_grad:
            total.backward()
    return counter.get_total_flops()


def made(run: Callable[[], torch.Tensor]) -> list[tuple[int, ...]]:
    with MadeTensors() as mode:
        total = run()
        if total.requires_grad:
            total.backward()
    return mode.shapes


def test_mle_makes_three_products() -> None:
    _, run = make(Mle())
    assert flops(run) == pytest.approx(6 * N * V * D, rel=0.01)


def test_emo_adds_one_product_for_the_distinct_targets_of_each_chunk() -> None:
    targets, run = make(Emo())
    distinct = sum(len(chunk.distinct_U) for chunk in targets.chunks)
    assert len(targets.chunks) > 3
    # Sorted by target, chunks share at most one target with the next.
    assert 60 <= distinct <= 60 + len(targets.chunks) - 1
    assert flops(run) == pytest.approx((6 * N + 2 * distinct) * V * D, rel=0.01)


@pytest.mark.parametrize("objective", [Mle(), Emo()], ids=repr)
def test_no_tensor_is_larger_than_a_chunk(objective: Any) -> None:
    targets, run = make(objective)
    sizes = [torch.Size(shape).numel() for shape in made(run)]
    # The check sees the logits of a chunk, and nothing above: neither N x V, nor logits and cost rows in one.
    row = padded(V, TorchRows.row_multiple)
    assert max(sizes) == max(targets.most_tokens, targets.most_distinct) * row < N * V
    assert targets.most_tokens + targets.most_distinct <= ROWS


def test_a_frozen_head_costs_no_gradient_of_the_head() -> None:
    _, run = make(Mle(), head=False)
    assert (V, D) in made(make(Mle())[1])
    assert (V, D) not in made(run)
    assert flops(run) == pytest.approx(4 * N * V * D, rel=0.01)


def test_frozen_hidden_states_cost_no_gradient() -> None:
    _, run = make(Mle(), hidden=False)
    assert flops(run) == pytest.approx(4 * N * V * D, rel=0.01)


@pytest.mark.parametrize("objective", [Mle(), Emo()], ids=repr)
def test_without_gradients_there_is_no_gradient_work(objective: Any) -> None:
    targets, run = make(objective)
    expected = run().detach()
    distinct = sum(len(chunk.distinct_U) for chunk in targets.chunks) if isinstance(objective, Emo) else 0
    with torch.no_grad():
        assert flops(run) == pytest.approx((2 * N + 2 * distinct) * V * D, rel=0.01)
        shapes = made(run)
        assert (V, D) not in shapes
        assert shapes.count((N, D)) == 1  # the hidden states, sorted
        assert torch.equal(run(), expected)


def test_chunks_cover_the_targets_once() -> None:
    labels = torch.tensor([[5, -100, 2, 5], [2, 9, -100, 5]])
    targets = prepare_for(Emo(), labels, vocabulary=10, chunk_bytes=4 * 10 * 4)
    assert targets.tokens == 8
    assert labels.flatten()[targets.order_M].tolist() == targets.ids_M.tolist() == [5, 5, 5, 2, 2, 9]
    assert [(chunk.start, chunk.stop, chunk.distinct_U.tolist()) for chunk in targets.chunks] == [
        (0, 2, [5]),
        (2, 4, [5, 2]),
        (4, 6, [2, 9]),
    ]
    for chunk in targets.chunks:
        assert torch.equal(chunk.distinct_U[chunk.index_C], targets.ids_M[chunk.start : chunk.stop])
