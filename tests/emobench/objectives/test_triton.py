"""The Triton kernels against float64: in Triton's interpreter where there is no GPU, compiled where there is one.

C = 17 tokens and V = 131, a prime: one block is mostly masked, and rows are padded to 256 entries. Kernels are held
against equations on the *same* rounded logits; whole losses against equations on the same rounded inputs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

import emobench
from emobench.core.errors import UserError
from emobench.models.head import Head, LogitMap
from emobench.objectives import STATISTICS, CostEmbedding, objective_loss, token_statistics
from emobench.objectives.engine.coefficients import coefficients
from emobench.objectives.engine.products import row_buffer
from emobench.objectives.engine.torch_rows import CostRows
from emobench.objectives.engine.triton_rows import (
    REDUCE_BLOCK,
    SCALE_BLOCK,
    SCALE_BLOCKS,
    TritonRows,
    finish_costs,
    place_scaled,
    scaled,
)
from emobench_objectives.emo import Emo

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
C, V, U = 17, 131, 5
HALF = (torch.bfloat16, torch.float16)
# What the gradient's own rounding to the dtype of the logits leaves.
GRADIENT_ERROR = {torch.float32: 2e-6, torch.bfloat16: 5e-3, torch.float16: 7e-4}
MAPS = [LogitMap(), LogitMap(scale=0.5, cap=4.0)]
dtypes = pytest.mark.parametrize("dtype", GRADIENT_ERROR, ids=str)
maps = pytest.mark.parametrize("logit_map", MAPS, ids=["plain", "capped"])


class Rows:
    """A chunk of logits with targets and cost rows, some of them kept."""

    def __init__(self, dtype: torch.dtype, raw_CV: Tensor | None = None) -> None:
        rng = torch.Generator().manual_seed(0)
        raw_CV = 2 * torch.randn(C, V, generator=rng) if raw_CV is None else raw_CV
        self.logits_CV = self._buffer(len(raw_CV), dtype).copy_(raw_CV)
        self.targets_C = torch.randint(V, (len(raw_CV),), generator=rng).to(DEVICE)
        cost_dtype = TritonRows.cost_dtype(dtype)
        fresh_UV, kept_KV = self._buffer(U, cost_dtype), self._buffer(2, cost_dtype)
        fresh_UV.copy_(2 * torch.rand(U, V, generator=rng))
        kept_KV.copy_(2 * torch.rand(2, V, generator=rng))
        index_C = torch.randint(-2, U, (len(raw_CV),), generator=rng).to(DEVICE)
        self.costs = CostRows(fresh_UV, kept_KV, index_C)
        self.cost_CV = torch.where(index_C[:, None] < 0, kept_KV[(-1 - index_C).clamp(0)], fresh_UV[index_C.clamp(0)])
        self.cost_CV = self.cost_CV.double().scatter(1, self.targets_C[:, None], 0)

    @staticmethod
    def _buffer(rows: int, dtype: torch.dtype) -> Tensor:
        return row_buffer(torch.empty(0, device=DEVICE), rows, V, dtype, TritonRows.row_multiple)

    def expected(self, logit_map: LogitMap, slopes: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        """Return the statistics, and d (sum of slope x statistic) / d raw logits, by float64 autograd."""
        raw_CV = self.logits_CV.double().requires_grad_()
        z = logit_map.apply(raw_CV)
        logq = z - z.logsumexp(-1, keepdim=True)
        q = logq.exp()
        some = torch.where(q > 0, logq, 0.0)
        rest = q.scatter(1, self.targets_C[:, None], 0)
        target = z.gather(1, self.targets_C[:, None])[:, 0]
        # log q_t as -log(1 + rest / target): near 0 the difference of two logarithms has no digits left.
        others = z.scatter(1, self.targets_C[:, None], -torch.inf).logsumexp(-1)
        log_prob = -torch.nn.functional.softplus(others - target)
        some = some.scatter(1, self.targets_C[:, None], log_prob[:, None])
        values = {
            "log_prob": log_prob,
            "log_partition": z.logsumexp(-1),
            "expected_cost": (q * self.cost_CV).sum(-1),
            "entropy": -(q * some).sum(-1),
            "mean_log_prob": logq.mean(-1),
            "sum_squares": (q * q).sum(-1),
        }
        total = sum((slopes[name].double() * values[name]).sum() for name in slopes)
        gradient_CV, by_logits_CV = torch.autograd.grad(total, (raw_CV, z))  # type: ignore[arg-type]
        values["alternatives"] = rest.sum(-1) ** 2 / rest.square().sum(-1)
        values["squares"] = by_logits_CV.square().sum(-1)
        return {n: v.detach() for n, v in values.items()}, gradient_CV


def error(actual: Tensor, expected: Tensor) -> float:
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


def random_slopes(*names: str) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(1)
    return {name: torch.randn(C, generator=rng).to(DEVICE) for name in names}


@maps
@dtypes
@pytest.mark.parametrize("names", [(name,) for name in STATISTICS] + [STATISTICS], ids=lambda n: n[0] if n[1:] else n)
def test_each_statistic_and_its_gradient(names: tuple[str, ...], dtype: torch.dtype, logit_map: LogitMap) -> None:
    rows = Rows(dtype)
    slopes = random_slopes(*names)
    expected, gradient_CV = rows.expected(logit_map, slopes)
    values = TritonRows.reduce(
        rows.logits_CV, rows.targets_C, rows.costs, frozenset(names) | {"alternatives"}, logit_map
    )
    assert values.keys() >= {*names, "log_prob", "log_partition", "alternatives"}
    for name, value in values.items():
        assert error(value, expected[name]) <= 1e-6, name
    numbers = coefficients(values, slopes, V)
    squares_C = TritonRows.differentiate(
        rows.logits_CV, rows.targets_C, rows.costs, values["log_partition"], numbers, logit_map
    )
    assert error(rows.logits_CV, gradient_CV) <= GRADIENT_ERROR[dtype]
    assert error(squares_C, expected["squares"]) <= 1e-5
    # What lies behind the vocabulary stays 0.
    assert rows.logits_CV.as_strided((C, 256), (256, 1))[:, V:].count_nonzero() == 0


@dtypes
def test_masked_vocabulary_entries(dtype: torch.dtype) -> None:
    raw_CV = torch.randn(C, V)
    raw_CV[:, ::3] = -torch.inf
    rows = Rows(dtype, raw_CV)
    rows.targets_C = rows.targets_C // 3 * 3 + 1
    names = frozenset(STATISTICS) - {"mean_log_prob"}  # whose value is -inf
    slopes = random_slopes(*sorted(names))
    rows.cost_CV = (
        rows.costs.write(slice(None), torch.empty_like(rows.logits_CV, dtype=rows.costs.fresh_UV.dtype))
        .double()
        .scatter(1, rows.targets_C[:, None], 0)
    )
    kept_V = torch.ones(V, dtype=torch.bool, device=DEVICE)
    kept_V[::3] = False
    # They might as well not exist.
    short = Rows(dtype, raw_CV)
    short.logits_CV, short.cost_CV = rows.logits_CV[:, kept_V], rows.cost_CV[:, kept_V]
    short.targets_C = kept_V.long().cumsum(0)[rows.targets_C] - 1
    expected, gradient_CV = short.expected(LogitMap(), slopes)
    values = TritonRows.reduce(rows.logits_CV, rows.targets_C, rows.costs, names, LogitMap())
    for name in names:
        assert error(values[name], expected[name]) <= 1e-6, name
    numbers = coefficients(values, slopes, V)
    TritonRows.differentiate(rows.logits_CV, rows.targets_C, rows.costs, values["log_partition"], numbers, LogitMap())
    assert error(rows.logits_CV[:, kept_V], gradient_CV) <= GRADIENT_ERROR[dtype]
    assert rows.logits_CV[:, ~kept_V].count_nonzero() == 0


@dtypes
@pytest.mark.parametrize("size", [1e4, 40.0, 12.0])
def test_confident_and_hopeless_tokens(size: float, dtype: torch.dtype) -> None:
    # Row 0 has its target on top by `size`, row 1 far below all others, the rest are in between.
    raw_CV = torch.randn(C, V, generator=torch.Generator().manual_seed(2))
    rows = Rows(dtype, raw_CV)
    rows.logits_CV[0, rows.targets_C[0]] = size
    rows.logits_CV[1, rows.targets_C[1]] = -size
    rows.logits_CV[2] *= size / 4
    slopes = random_slopes("log_prob", "expected_cost", "entropy")
    expected, gradient_CV = rows.expected(LogitMap(), slopes)
    values = TritonRows.reduce(rows.logits_CV, rows.targets_C, rows.costs, frozenset(slopes), LogitMap())
    for name in slopes:
        # Each row by itself: a confident one's values are tiny, and keep their digits.
        for found, wanted in zip(values[name].double().tolist(), expected[name].tolist(), strict=True):
            assert found == pytest.approx(wanted, rel=2e-5, abs=1e-30), name
    numbers = coefficients(values, slopes, V)
    TritonRows.differentiate(rows.logits_CV, rows.targets_C, rows.costs, values["log_partition"], numbers, LogitMap())
    assert rows.logits_CV.isfinite().all()
    assert error(rows.logits_CV, gradient_CV) <= 2 * GRADIENT_ERROR[dtype]


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_costs_are_finished(dtype: torch.dtype) -> None:
    """1 - <x, y> of rounded rows becomes 1 - cos, with the digits of near duplicates, and 0 for the token itself."""
    rng = torch.Generator().manual_seed(3)
    weight_VE = torch.randn(V, 64, generator=rng)
    weight_VE[1] = weight_VE[0] + 1e-3 * torch.randn(64, generator=rng)
    weight_VE[7] = 0
    cost = CostEmbedding(weight_VE.to(DEVICE), dtype=dtype)
    tokens_U = torch.tensor([0, 1, 7, 130], device=DEVICE)
    out_UV = row_buffer(weight_VE.to(DEVICE), len(tokens_U), V, torch.float16, TritonRows.row_multiple)
    rows_VE = cost.rows_VE.double()
    out_UV.copy_(1 - rows_VE[tokens_U] @ rows_VE.T)
    finish_costs(out_UV, tokens_U, cost.inverse_norm_V)
    unit_VE = torch.nn.functional.normalize(rows_VE, dim=1)
    expected_UV = (1 - unit_VE[tokens_U] @ unit_VE.T).scatter(1, tokens_U[:, None], 0).clamp(min=0)
    assert torch.equal(out_UV == 0, expected_UV == 0)
    assert error(out_UV, expected_UV) <= 1e-3
    assert float(out_UV[0, 1]) == pytest.approx(float(expected_UV[0, 1]), rel=0.1, abs=1e-6)
    assert (out_UV[2].double() - 1).abs().max() in (0.0, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("count", [0, 7, SCALE_BLOCK * SCALE_BLOCKS + 5000])
@pytest.mark.parametrize("factor", [1.003, 1.0])
def test_a_gradient_is_scaled_and_rounded_once(factor: float, count: int, dtype: torch.dtype) -> None:
    values = torch.randn(count, generator=torch.Generator().manual_seed(4)).to(DEVICE)
    scale = torch.tensor(factor, device=DEVICE)
    for given in (values, values.to(dtype)):
        expected = (given.float() * scale).to(dtype)
        # The interpreter cuts bfloat16 where the GPU rounds.
        torch.testing.assert_close(scaled(given.clone(), scale, dtype), expected, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
@pytest.mark.parametrize(("rows", "width"), [(0, 8), (5, 7), (6, 4099)])
def test_rows_are_scaled_and_put_in_their_places(rows: int, width: int, dtype: torch.dtype) -> None:
    rng = torch.Generator().manual_seed(5)
    rows_MD = torch.randn(rows, width, generator=rng).to(DEVICE, dtype)
    places_M = torch.randperm(7, generator=rng)[:rows].to(DEVICE)
    scale, out_ND = torch.tensor(1.003, device=DEVICE), torch.zeros(7, width, device=DEVICE, dtype=dtype)
    expected_ND = out_ND.clone()
    expected_ND[places_M] = (rows_MD.float() * scale).to(dtype)
    place_scaled(rows_MD, places_M, scale, out_ND)
    torch.testing.assert_close(out_ND, expected_ND, rtol=torch.finfo(dtype).eps, atol=0)


class All(emobench.StatisticsObjective):
    """Reads everything, and not linearly."""

    needs = frozenset(STATISTICS)

    def loss(self, s: emobench.TokenStatistics) -> Tensor:
        smooth = 0.01 * s.log_partition**2 - 0.1 * s.mean_log_prob
        return -s.log_prob + 0.5 * s.expected_cost * s.entropy + smooth + s.sum_squares.sqrt()


@dtypes
@maps
@pytest.mark.parametrize("keep", [False, True], ids=["made", "kept"])
@pytest.mark.parametrize("make", [Emo, All])
def test_a_whole_loss(make: Any, keep: bool, logit_map: LogitMap, dtype: torch.dtype) -> None:
    """Against the reference in float64: 40 tokens in several chunks, with bias and padding rows in the head."""
    rng = torch.Generator().manual_seed(4)
    n, d, padding = 40, 24, 3
    hidden_ND = torch.randn(n, d, generator=rng).to(dtype)
    head_VD = (torch.randn(V + padding, d, generator=rng) / d**0.5).to(dtype)
    bias_V = torch.randn(V + padding, generator=rng).to(dtype)
    labels_N = torch.randint(30, (n,), generator=rng)
    labels_N[::7] = -100
    cost_VE = torch.randn(V, 16, generator=rng)
    outcomes = []
    for impl, to in (("triton", dtype), ("reference", torch.float64)):
        objective = make()
        objective.use_cost(CostEmbedding(cost_VE.to(DEVICE, torch.float64 if to == torch.float64 else torch.float32)))
        if keep and impl == "triton":
            objective.cost_embedding.keep(torch.arange(0, 30, 2))
        leaves = [t.detach().clone().to(DEVICE, to).requires_grad_() for t in (hidden_ND, head_VD, bias_V)]
        result = objective_loss(
            objective,
            *leaves,
            labels_N.to(DEVICE),
            logit_map=logit_map,
            denominator=torch.tensor(30, device=DEVICE),
            vocabulary=V,
            impl=impl,
            chunk_bytes=16 * V * dtype.itemsize,
        )
        result.total.backward()
        outcomes.append((result.losses_N, *(leaf.grad for leaf in leaves)))
    limit = {torch.float32: 5e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}[dtype]
    for actual, expected in zip(*outcomes, strict=True):
        assert error(actual, expected) <= limit
    assert all(gradient[V:].count_nonzero() == 0 for gradient in outcomes[0][2:])


@dtypes
@pytest.mark.parametrize("vocabulary", [V, 2 * REDUCE_BLOCK + V], ids=["one block", "whole blocks"])
def test_statistics_of_tokens_are_those_in_double_precision(vocabulary: int, dtype: torch.dtype) -> None:
    """Also of a half-precision head: its logits are reported as they are, not rounded."""
    rng = torch.Generator().manual_seed(5)
    linear = torch.nn.Linear(8, vocabulary).to(DEVICE, dtype)
    wide = torch.nn.Linear(8, vocabulary).to(DEVICE, torch.float64)
    wide.load_state_dict(linear.state_dict())
    hidden_ND = (20 * torch.randn(12, 8, generator=rng)).to(DEVICE, dtype)
    labels_N = torch.arange(12, device=DEVICE) * (vocabulary // 12)
    rows_VE = torch.randn(vocabulary, 4, generator=rng).to(DEVICE)
    calls = (("triton", hidden_ND, linear, rows_VE), ("torch", hidden_ND.double(), wide, rows_VE.double()))
    found, expected = (
        token_statistics(
            states_ND,
            Head(head, LogitMap(cap=10.0)),
            labels_N,
            set(STATISTICS),
            chunk=5,
            cost=CostEmbedding(embedding_VE),
            impl=impl,
        )
        for impl, states_ND, head, embedding_VE in calls
    )
    for name in STATISTICS:
        assert error(found[name], expected[name]) <= 1e-6, name


def test_float64_is_refused() -> None:
    with pytest.raises(UserError, match=r"impl is 'triton' for torch\.float64 .* Take impl='torch'"):
        objective_loss(
            Emo(), torch.randn(3, 4).double(), torch.randn(9, 4).double(), None, torch.arange(3), impl="triton"
        )


@pytest.mark.slow
def test_kernels_compile_for_hopper_with_wide_loads_and_no_spills() -> None:
    """Needs no GPU: Triton brings the compiler. In a process of its own, without the interpreter."""
    script = __file__.replace("test_triton.py", "compile_kernels.py")
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {"TRITON_DEFAULT_FP_FUSION": "1"}
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert len(lines) == 29
    for line in lines:
        assert "spilled 0" in line
        assert "narrow 0" in line, line
        assert "barriers 0" in line or not line.startswith("reduce"), line
