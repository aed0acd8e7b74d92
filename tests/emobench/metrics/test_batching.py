"""Batches: within the budget, longest first, and a model that gets its modes back."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from emobench.metrics.batching import by_length, pad, reading


def test_by_length_keeps_the_budget_and_loses_no_row() -> None:
    assert by_length([3, 10, 4, 10, 1], 20) == [[1, 3], [2, 0, 4]]
    assert by_length([30, 2], 20) == [[0], [1]]  # a row over the budget stands alone
    assert by_length([], 20) == []


def test_by_length_keeps_to_the_padding() -> None:
    lengths = [10, 300, 100, 99, 98, 60, 301, 302, 5]
    assert by_length(lengths, 610, 0.05) == [[7, 6], [1], [2, 3, 4], [5], [0], [8]]
    assert by_length([], 10, 0.05) == []
    assert by_length([50], 10, 0.05) == [[0]]


def test_pad_on_either_side() -> None:
    cpu = torch.device("cpu")
    ids, mask = pad([[1, 2, 3], [4]], 9, cpu)
    assert ids.tolist() == [[1, 2, 3], [4, 9, 9]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]
    ids, mask = pad([[1, 2, 3], [4]], 9, cpu, left=True)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_reading_restores_every_modules_mode() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Dropout()).train()
    model[1].eval()

    def fail_inside() -> None:
        with reading(model) as device:
            assert device.type == "cpu"
            assert not any(module.training for module in model.modules())
            assert not torch.is_grad_enabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert [module.training for module in model.modules()] == [True, True, False]
    assert torch.is_grad_enabled()
