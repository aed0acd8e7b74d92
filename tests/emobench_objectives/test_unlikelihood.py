"""Unlikelihood against loops over tokens, in float64, and its numerics where the model is sure."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from emobench.data.packing import RowCollator
from emobench.objectives import IGNORED, objective_loss
from emobench_objectives.unlikelihood import Unlikelihood

V, D = 11, 6


def draw(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def batch() -> dict[str, Tensor]:
    """Three rows; the second is padded with a token (5) that it also holds, and the third has a masked prompt."""
    rows = [[5, 3, 3, 7, 5, 3, 9, 7], [5, 2, 5, 2], [1, 4, 1, 4, 6, 1]]
    labels = [rows[0], rows[1], [IGNORED] * 3 + rows[2][3:]]
    lines = [
        {"input_ids": torch.tensor(r).numpy(), "labels": torch.tensor(t).numpy()}
        for r, t in zip(rows, labels, strict=True)
    ]
    return RowCollator(5)(lines)


def by_hand(given: dict[str, Tensor], log_q_BTV: Tensor, alpha: float) -> Tensor:
    """Return the summed loss: the definition of Welleck et al., one token after the other."""
    total = log_q_BTV.new_zeros(())
    for ids, labels, log_q in zip(given["input_ids"].tolist(), given["labels"].tolist(), log_q_BTV, strict=True):
        for t in range(1, len(ids)):
            if labels[t] != IGNORED:
                candidates = set(ids[:t]) - {labels[t]}
                total = total - log_q[t - 1, labels[t]]
                total = total - alpha * sum(torch.log(1 - log_q[t - 1, c].exp()) for c in candidates)
    return total


def tokens(given: dict[str, Tensor], value_BT: Tensor, fill: int) -> Tensor:
    """Align with the position that predicts, as the harness does."""
    shifted = torch.full_like(value_BT, fill)
    shifted[:, :-1] = value_BT[:, 1:]
    return shifted.flatten(0, 1)


@pytest.mark.parametrize("impl", ["reference", "chunked"])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 0.3])
def test_unlikelihood_is_its_definition(impl: str, alpha: float) -> None:
    given, objective = batch(), Unlikelihood(alpha=alpha)
    hidden_BTD = draw(0, *given["input_ids"].shape, D).requires_grad_()
    head_VD = draw(1, V, D).requires_grad_()
    expected = by_hand(given, (hidden_BTD @ head_VD.T).log_softmax(-1), alpha)
    side = {name: tokens(given, value, 0) for name, value in objective.side_data(given).items()}
    result = objective_loss(
        objective, hidden_BTD.flatten(0, 1), head_VD, None, tokens(given, given["labels"], IGNORED), side=side,
        impl=impl, chunk_bytes=4 * V * 4,
    )  # fmt: skip
    torch.testing.assert_close(result.total, expected, rtol=1e-12, atol=0)
    leaves = (hidden_BTD, head_VD)
    torch.testing.assert_close(
        torch.autograd.grad(result.total, leaves), torch.autograd.grad(expected, leaves), rtol=1e-10, atol=1e-12
    )


def test_candidates_are_distinct_small_and_free_of_padding() -> None:
    given = batch()
    context_BTT = Unlikelihood().side_data(given)["context_tokens"]
    assert context_BTT.dtype == torch.int32
    assert context_BTT.shape == (3, 8, 8)

    def held(row: int, t: int) -> list[int]:
        return [token for token in context_BTT[row, t].tolist() if token != -1]

    assert [held(0, t) for t in (0, 1, 3, 7)] == [[], [5], [5, 3], [5, 3, 7, 9]]
    assert held(1, 3) == [5, 2]
    left = {"input_ids": torch.tensor([[5, 5, 2, 5]]), "attention_mask": torch.tensor([[0, 0, 1, 1]])}
    assert Unlikelihood().side_data(left)["context_tokens"][0, 3].tolist() == [-1, -1, 2, -1]


@pytest.mark.parametrize("gap", [0.0, 1.0, 20.0, 60.0, 500.0])
def test_a_sure_candidate_has_an_exact_loss_and_gradient_in_single_precision(gap: float) -> None:
    # Token 0 is the candidate and `gap` above token 1, the target; token 2 is as likely as the target.
    def loss(dtype: torch.dtype) -> tuple[float, Tensor]:
        logits = torch.tensor([[gap, 0.0, 0.0]], dtype=dtype, requires_grad=True)
        found = Unlikelihood().loss(logits, torch.tensor([1]), {"context_tokens": torch.tensor([[0, -1]])})
        return float(found.detach()), torch.autograd.grad(found.sum(), logits)[0].double()

    # -log q_1 - log(1 - q_0), with 1 - q_0 = 2 / (e^gap + 2).
    z = torch.tensor([[gap, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    exact = 2 * z.logsumexp(-1) - z[:, 1] - z[:, 1:].logsumexp(-1)
    found, gradient = loss(torch.float32)
    assert found == pytest.approx(float(exact.detach()), rel=1e-6)
    torch.testing.assert_close(gradient, torch.autograd.grad(exact.sum(), z)[0], rtol=5e-6, atol=1e-6)
