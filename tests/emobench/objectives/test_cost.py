"""The cost embedding by itself: its costs against the cosine matrix, its views, and what it refuses."""

from __future__ import annotations

import pytest
import torch

from emobench.core.errors import UserError
from emobench.objectives import CostEmbedding

V, D = 131, 24


def test_a_view_of_the_head_gives_the_costs_of_a_copy() -> None:
    weight_VE = torch.randn(V, D, generator=torch.Generator().manual_seed(0))
    weight_VE[5] = 0
    tokens_U = torch.tensor([0, 5, 99])
    copied, viewed = CostEmbedding(weight_VE), CostEmbedding(weight_VE, copy=False)
    assert viewed.rows_VE.data_ptr() == weight_VE.data_ptr()
    assert torch.allclose(viewed.costs(tokens_U), copied.costs(tokens_U), atol=1e-6)
    assert copied.zero_rows == viewed.zero_rows == 1


def test_expected_costs_are_those_of_the_cost_matrix() -> None:
    rng = torch.Generator().manual_seed(0)
    weight_VE = torch.randn(V, D, generator=rng, dtype=torch.float64)
    weight_VE[5] = 0
    probs_CV = torch.rand(4, V, generator=rng, dtype=torch.float64)
    cost = CostEmbedding(weight_VE)
    cost_VV = cost.costs(torch.arange(V))
    assert torch.allclose(cost.expected(probs_CV), probs_CV @ cost_VV, rtol=1e-12)


def test_a_cost_embedding_is_a_matrix_of_floats() -> None:
    with pytest.raises(
        UserError, match=r"A cost embedding is \(9,\) of torch\.float32; expected floats, \(tokens, width\)"
    ):
        CostEmbedding(torch.randn(9, 4)[:, 0])
    with pytest.raises(UserError, match=r"of torch\.int64; expected floats"):
        CostEmbedding(torch.randn(9, 4).long())
