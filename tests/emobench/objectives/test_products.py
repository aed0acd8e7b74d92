"""Products into a wider result: the same numbers whichever library computes them."""

from __future__ import annotations

import pytest
import torch

from emobench.objectives.engine import products
from emobench.objectives.engine.products import multiply_wide, row_buffer

LARGE = (9001, 512)  # more than two slices, and the entries from which on oneDNN is asked


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [LARGE, (9001, 16)])
def test_a_product_is_that_of_float64(shape: tuple[int, int], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    left_AD, right_BD = torch.randn(33, shape[1], dtype=dtype), torch.randn(shape, dtype=dtype)
    out_AB = row_buffer(left_AD, 33, shape[0], torch.float32, 16)
    multiply_wide(left_AD, right_BD, out_AB)
    exact = left_AD.double() @ right_BD.double().T
    assert (out_AB - exact).abs().max() < 3e-6 * exact.abs().max()


@pytest.mark.parametrize("kind", ["large", "strided", "absent", "autocast", "float64"])
def test_onednn_takes_large_contiguous_float32_weights_alone(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        products,
        "product",
        lambda rows, weight: (asked.append(len(weight)), torch.nn.functional.linear(rows, weight))[1],
    )
    dtype = torch.float64 if kind == "float64" else torch.float32
    left_AD, right_BD = torch.ones(2, LARGE[1], dtype=dtype), torch.ones(LARGE, dtype=dtype)
    if kind == "strided":
        right_BD = right_BD.T.contiguous().T
    if kind == "absent":
        monkeypatch.setattr(products, "has_onednn", lambda: False)
    out_AB = torch.empty(2, LARGE[0], dtype=dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == "autocast"):
        multiply_wide(left_AD, right_BD, out_AB)
    assert out_AB.eq(LARGE[1]).all()
    assert asked == ([4096, 4096, 809] if kind == "large" else [])
