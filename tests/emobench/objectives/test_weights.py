"""Weights of examples in the engine: the loss and the gradients are those of the weighted sum, in every path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

import emobench
from emobench.core.errors import PluginError
from emobench.models.head import LogitMap
from emobench.objectives import CostEmbedding, LossResult, objective_loss
from emobench_objectives.emo import Emo
from emobench_objectives.mle import Mle

N, V, D = 40, 31, 8


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


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(0)
    hidden_ND, head_VD = (torch.randn(size, D, generator=rng, dtype=torch.float64) for size in (N, V))
    labels_N = torch.randint(V, (N,), generator=rng)
    labels_N[::7] = -100
    return hidden_ND, head_VD, labels_N, torch.randint(4, (N,), generator=rng).double()


def computed(
    name: str, hidden_ND: Tensor, head_VD: Tensor, labels_N: Tensor, weights_N: Tensor | None, **options: Any
) -> tuple[LossResult, Tensor, Tensor]:
    objective = OBJECTIVES[name]()
    if isinstance(objective, Emo):
        objective.use_cost(CostEmbedding(torch.randn(V, 5, generator=torch.Generator().manual_seed(1)).double()))
    hidden_ND, head_VD = hidden_ND.clone().requires_grad_(), head_VD.clone().requires_grad_()
    found = objective_loss(objective, hidden_ND, head_VD, None, labels_N, weights_N=weights_N, **options)
    by_hidden, by_head = torch.autograd.grad(found.total, (hidden_ND, head_VD))
    return found, by_hidden, by_head


@pytest.mark.parametrize("options", [{}, {"chunk_bytes": 8 * V * 6}, {"impl": "reference"}], ids=str)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_weight_of_k_is_k_copies_of_the_token(name: str, options: dict[str, Any]) -> None:
    hidden_ND, head_VD, labels_N, weights_N = inputs()
    logit_map = LogitMap(cap=3.0)
    found, by_hidden, by_head = computed(name, hidden_ND, head_VD, labels_N, weights_N, logit_map=logit_map, **options)
    copies = weights_N.long()
    many, by_copies, expected_head = computed(
        name,
        hidden_ND.repeat_interleave(copies, 0),
        head_VD,
        labels_N.repeat_interleave(copies),
        None,
        logit_map=logit_map,
        **options,
    )
    of = torch.arange(N).repeat_interleave(copies)
    torch.testing.assert_close(found.total, many.total, rtol=1e-10, atol=0)
    torch.testing.assert_close(
        by_hidden, torch.zeros_like(by_hidden).index_add(0, of, by_copies), rtol=1e-9, atol=1e-12
    )
    torch.testing.assert_close(by_head, expected_head, rtol=1e-9, atol=1e-12)
    assert (float(found.weight), found.count) == (many.count, int((labels_N != -100).sum()))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_weights_leave_losses_and_logged_parts_of_tokens_as_they_are(name: str) -> None:
    hidden_ND, head_VD, labels_N, weights_N = inputs()
    plain, *_ = computed(name, hidden_ND, head_VD, labels_N, None)
    found, *_ = computed(name, hidden_ND, head_VD, labels_N, weights_N + 0.5)
    assert torch.equal(found.losses_N, plain.losses_N)
    assert found.parts.keys() - plain.parts.keys() == {"example_weight"}
    for part, value in plain.parts.items():
        assert float(found.parts[part]) == pytest.approx(float(value), rel=1e-9), part


def test_weights_of_another_number_of_tokens_are_refused() -> None:
    hidden_ND, head_VD, labels_N, weights_N = inputs()
    with pytest.raises(PluginError, match="weights have 39 rows; expected one for each of the 40 tokens"):
        objective_loss(Mle(), hidden_ND, head_VD, None, labels_N, weights_N=weights_N[1:])
