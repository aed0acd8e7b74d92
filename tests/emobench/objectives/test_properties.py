"""Properties that hold for any logits and targets, and the engine's bookkeeping.

Hypothesis draws seeds and scales; tensors come from the seed, so that a failing example is one line.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from emobench.core.errors import UserError
from emobench.models.head import Head, LogitMap
from emobench.models.inference import optimize_for_inference
from emobench.objectives import GREEDY, CostEmbedding, objective_loss, token_statistics
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

few = settings(max_examples=20, deadline=None, derandomize=True, database=None)
seeds = st.integers(0, 2**31)


def emo_and_logits(seed: int, scale: float, tokens: int, vocabulary: int) -> tuple[Emo, Tensor, Tensor]:
    """Logits as the columns of a head whose hidden states are unit vectors, and targets; half are the argmax."""
    rng = torch.Generator().manual_seed(seed)
    head_VN = scale * torch.randn(vocabulary, tokens, generator=rng)
    labels_N = torch.randint(vocabulary, (tokens,), generator=rng)
    labels_N[::2] = head_VN.argmax(0)[::2]
    objective = Emo()
    objective.use_cost(CostEmbedding(torch.randn(vocabulary, 3, generator=rng)))
    return objective, head_VN, labels_N


@few
@given(seed=seeds, scale=st.floats(0.01, 60), vocabulary=st.integers(2, 50))
def test_emo_cannot_explode(seed: int, scale: float, vocabulary: int) -> None:
    # sum_v q_v |c_v - u| <= 2 u, so the L1 norm of d emo / d logits is at most (1 - q_t) / 2 * 2 + MLE, for any DEMD.
    objective, head_VN, labels_N = emo_and_logits(seed, scale, 12, vocabulary)
    head_VN.requires_grad_()
    # With hidden = identity, the head's gradient is d loss / d logits.
    result = objective_loss(objective, torch.eye(12), head_VN, None, labels_N)
    result.total.backward()
    assert head_VN.grad is not None
    log_prob_N = result.log_prob_N.double()
    bound_N = -torch.expm1(log_prob_N) - log_prob_N
    assert (head_VN.grad.double().abs().sum(0) <= bound_N * (1 + 1e-5)).all()


@few
@given(exponent=st.floats(-7, -0.5), vocabulary=st.integers(2, 1000))
def test_mle_of_a_confident_token_keeps_its_digits(exponent: float, vocabulary: int) -> None:
    # 1 - q_t = 10^exponent, spread evenly over the other tokens; float32 has no 1 - 1e-8.
    rest = 10.0**exponent
    gap = math.log((1 - rest) / rest * (vocabulary - 1))
    head_VD = torch.zeros(vocabulary, 1)
    head_VD[1] = gap
    exact = math.log1p((vocabulary - 1) * math.exp(-float(head_VD[1])))
    found = objective_loss(Mle(), torch.ones(1, 1), head_VD, None, torch.tensor([1])).total
    assert float(found) == pytest.approx(exact, rel=1e-5)


@few
@given(seed=seeds, rows=st.integers(1, 40), scale=st.floats(1e-6, 1e6))
def test_costs_are_exact_where_it_matters(seed: int, rows: int, scale: float) -> None:
    weight_VE = scale * torch.randn(40, 5, generator=torch.Generator().manual_seed(seed))
    weight_VE[7] = 0
    cost = CostEmbedding(weight_VE)
    tokens_U = torch.arange(rows)
    costs_UV = cost.costs(tokens_U)
    assert (costs_UV[tokens_U, tokens_U] == 0).all()
    assert (costs_UV >= 0).all()
    unit = torch.nn.functional.normalize(weight_VE.double(), dim=1)
    expected = (1 - unit[:rows] @ unit.T)[~torch.eye(40, dtype=torch.bool)[:rows]]
    torch.testing.assert_close(costs_UV[~torch.eye(40, dtype=torch.bool)[:rows]].double(), expected, atol=5e-7, rtol=0)


@pytest.mark.parametrize(("dtype", "bound"), [(torch.bfloat16, 5e-2), (torch.float16, 5e-3)])
def test_half_precision_rows_keep_near_duplicates_apart(dtype: torch.dtype, bound: float) -> None:
    # Two rows at 1 - cos = 1.4e-4 in 768 dimensions. Normed before they were rounded, bfloat16 rows are off by 260 %.
    rng = torch.Generator().manual_seed(0)
    row_E = torch.randn(768, generator=rng, dtype=torch.float64)
    near_E = row_E + 0.0168 * torch.randn(768, generator=rng, dtype=torch.float64)
    exact = float(1 - torch.cosine_similarity(row_E, near_E, dim=0))
    assert 1e-4 < exact < 2e-4
    # The rows are made wide again, so that only their rounding is measured, not that of a half-precision product.
    cost = CostEmbedding(torch.stack([row_E, near_E]).float(), dtype=dtype)
    cost.rows_VE = cost.rows_VE.float()
    assert float(cost.costs(torch.tensor([0]))[0, 1]) == pytest.approx(exact, rel=bound)


@few
@given(seed=seeds, rows=st.integers(1, 60), scale=st.floats(0.1, 10))
def test_neither_order_nor_chunks_matter(seed: int, rows: int, scale: float) -> None:
    objective, head_VN, labels_N = emo_and_logits(seed, scale, 20, 31)
    labels_N[3:6] = -100
    hidden_ND = torch.eye(20)

    def run(order_N: Tensor, chunk_bytes: int | None) -> tuple[Any, Tensor]:
        head = head_VN.clone().requires_grad_()
        result = objective_loss(objective, hidden_ND[order_N], head, None, labels_N[order_N], chunk_bytes=chunk_bytes)
        result.total.backward()
        assert head.grad is not None
        return result, head.grad

    order_N = torch.randperm(20, generator=torch.Generator().manual_seed(seed))
    plain, plain_grad = run(torch.arange(20), None)
    moved, moved_grad = run(order_N, 4 * 31 * rows)
    torch.testing.assert_close(moved.total, plain.total, rtol=1e-6, atol=0)
    torch.testing.assert_close(moved_grad, plain_grad, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moved.losses_N, plain.losses_N[order_N], rtol=1e-6, atol=0)
    torch.testing.assert_close(moved.log_prob_N, plain.log_prob_N[order_N], rtol=1e-6, atol=0)
    for name, value in plain.parts.items():
        torch.testing.assert_close(moved.parts[name], value, rtol=1e-6, atol=0)


def test_token_statistics_are_those_of_the_whole_softmax() -> None:
    rng = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(8, 31)
    hidden_ND, labels_N = torch.randn(20, 8, generator=rng), torch.randint(31, (20,), generator=rng)
    labels_N[4] = -100
    cost_VE = torch.randn(31, 4, generator=rng)
    head = Head(linear, LogitMap(scale=3.0, cap=4.0))
    needs = {"entropy", "expected_cost", "sum_squares", "mean_log_prob", "log_partition"}
    found = token_statistics(hidden_ND, head, labels_N, needs, chunk=3, cost=CostEmbedding(cost_VE))
    z = 4 * torch.tanh(3 * linear(hidden_ND).detach().double() / 4)
    q = z.softmax(-1)
    unit = torch.nn.functional.normalize(cost_VE.double(), dim=1)
    expected = {
        "log_prob": q.log()[torch.arange(20), labels_N.clamp(min=0)],
        "expected_cost": (q * (1 - unit[labels_N.clamp(min=0)] @ unit.T)).sum(-1),
        "entropy": -(q * q.log()).sum(-1),
        "log_partition": z.logsumexp(-1),
        "mean_log_prob": q.log().mean(-1),
        "sum_squares": (q * q).sum(-1),
    }
    assert set(found.values) == set(expected)
    for name, value_N in expected.items():
        value_N[4] = 0
        torch.testing.assert_close(found[name].double(), value_N, rtol=1e-5, atol=1e-6)
        assert not found[name].requires_grad


@pytest.mark.parametrize("chunk", [1, 200])
def test_the_packed_product_of_a_head_gives_the_same_statistics(chunk: int) -> None:
    rng = torch.Generator().manual_seed(0)
    linear = torch.nn.Linear(24, 40)
    hidden_ND, labels_N = torch.randn(400, 24, generator=rng), torch.randint(31, (400,), generator=rng)
    head = Head(linear, LogitMap(scale=3.0, cap=4.0), vocabulary=31)
    expected = token_statistics(hidden_ND, head, labels_N, {"entropy", GREEDY}, chunk=chunk)
    optimize_for_inference(torch.nn.Sequential(linear))
    assert head.packed_product is not None
    found = token_statistics(hidden_ND, head, labels_N, {"entropy", GREEDY}, chunk=chunk)
    for name in ("log_prob", "entropy"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-5)
    assert torch.equal(found[GREEDY], expected[GREEDY])


def test_statistics_have_no_reference_implementation() -> None:
    head = Head(nn.Linear(4, 8, bias=False), LogitMap())
    with pytest.raises(UserError):
        token_statistics(torch.zeros(2, 4), head, torch.zeros(2, dtype=torch.long), impl="reference")
